/* Types and operators of the MPI as those of Fanin; vectors that are not contiguous.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fanin_mpi.h"

#include <limits.h>
#include <stdlib.h>

/* What the bits of a type mean; its size says the rest. */
typedef enum { NOT_KNOWN, FLOATS, HALF, COMPLEX, SIGNED, UNSIGNED, BYTES } fm_family;

static fm_family family_in_c(MPI_Datatype type)
{
    if (type == MPI_DOUBLE || type == MPI_FLOAT)
        return FLOATS;
    if (type == MPI_INT || type == MPI_LONG || type == MPI_LONG_LONG_INT || type == MPI_SHORT || type == MPI_SIGNED_CHAR || type == MPI_INT8_T
        || type == MPI_INT16_T || type == MPI_INT32_T || type == MPI_INT64_T || type == MPI_AINT || type == MPI_OFFSET || type == MPI_COUNT)
        return SIGNED;
    if (type == MPI_UNSIGNED || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG || type == MPI_UNSIGNED_SHORT
        || type == MPI_UNSIGNED_CHAR || type == MPI_UINT8_T || type == MPI_UINT16_T || type == MPI_UINT32_T || type == MPI_UINT64_T)
        return UNSIGNED;
    if (type == MPI_BYTE)
        return BYTES;
    if (type == MPI_C_FLOAT_COMPLEX || type == MPI_C_DOUBLE_COMPLEX)
        return COMPLEX;
#ifdef MPI_CXX_FLOAT_COMPLEX
    if (type == MPI_CXX_FLOAT_COMPLEX || type == MPI_CXX_DOUBLE_COMPLEX)
        return COMPLEX;
#endif
#ifdef MPIX_C_FLOAT16
    if (type == MPIX_C_FLOAT16)
        return HALF;
#endif
#if defined(OMPI_HAVE_MPI_EXT_SHORTFLOAT) && OMPI_HAVE_MPI_EXT_SHORTFLOAT && defined(OMPI_HAVE_SHORT_FLOAT)
    if (type == MPIX_SHORT_FLOAT)
        return HALF;
#endif
    return NOT_KNOWN;
}

/* Fortran's sizes are its compiler's choice, and types that it lacks are MPI_DATATYPE_NULL. */
static fm_family family_in_fortran(MPI_Datatype type)
{
    if (type == MPI_REAL || type == MPI_DOUBLE_PRECISION || type == MPI_REAL4 || type == MPI_REAL8)
        return FLOATS;
    if (type == MPI_INTEGER || type == MPI_INTEGER1 || type == MPI_INTEGER2 || type == MPI_INTEGER4 || type == MPI_INTEGER8)
        return SIGNED;
    if (type == MPI_COMPLEX || type == MPI_DOUBLE_COMPLEX || type == MPI_COMPLEX8 || type == MPI_COMPLEX16)
        return COMPLEX;
    return NOT_KNOWN;
}

static bool integer_of(uint64_t bytes, fanin_type *of)
{
    switch (bytes) {
    case 1: *of = FANIN_I8; return true;
    case 2: *of = FANIN_I16; return true;
    case 4: *of = FANIN_I32; return true;
    case 8: *of = FANIN_I64; return true;
    default: return false;
    }
}

static bool float_of(uint64_t bytes, fanin_type *of)
{
    *of = bytes == 4 ? FANIN_F32 : FANIN_F64;
    return bytes == 4 || bytes == 8;
}

/* Fanin's operator of this name; whether it is about bits. */
static bool operator_of(MPI_Op op, fanin_operator *by, bool *bits)
{
    static const fanin_operator ours[] = {FANIN_SUM, FANIN_PROD, FANIN_MIN, FANIN_MAX, FANIN_AND, FANIN_OR, FANIN_XOR};
    const MPI_Op theirs[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR};

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (op == theirs[i]) {
            *by = ours[i];
            *bits = i >= 4;
            return true;
        }
    }
    return false;
}

/* The reduction as Fanin's, of `each` elements of Fanin for one of the MPI's; or why there is none. Programs give predefined operators types that
 * are predefined, the same at all ranks, so that all of them decide alike. */
bool fm_reduction(MPI_Datatype type, MPI_Op op, fanin_type *of, fanin_operator *by, size_t *each, fm_reason *why)
{
    bool bits = false, fits = false;
    const bool orders = op == MPI_MIN || op == MPI_MAX;
    fm_family family = type == MPI_DATATYPE_NULL ? NOT_KNOWN : family_in_c(type);
    uint64_t bytes;

    *why = FM_OPERATOR;
    if (!operator_of(op, by, &bits))
        return false;
    *why = FM_TYPE;
    if (type != MPI_DATATYPE_NULL && family == NOT_KNOWN)
        family = family_in_fortran(type);
    if (family == NOT_KNOWN)
        return false;
    bytes = fm_type_bytes(type);
    *each = 1;
    switch (family) {
    case FLOATS: fits = !bits && float_of(bytes, of) && !(fm_policy.reproducible && op == MPI_PROD); break;
    case HALF: *of = FANIN_F16; fits = !bits && bytes == 2 && !(fm_policy.reproducible && op == MPI_PROD); break;
    case COMPLEX: *each = 2; fits = op == MPI_SUM && float_of(bytes / 2, of); break;
    case SIGNED: fits = integer_of(bytes, of); break;
    /* Sums, products and bits are those of signed integers; the order is not. */
    case UNSIGNED:
        fits = integer_of(bytes, of) && (!orders || bytes == 1);
        if (bytes == 1)
            *of = FANIN_U8;
        break;
    case BYTES: *of = FANIN_U8; fits = bits; break;
    default: break;
    }
    if (!fits)
        *why = FM_TYPE;
    return fits;
}

uint64_t fm_type_bytes(MPI_Datatype type)
{
#if FM_MPI_4
    MPI_Count bytes = 0;
    return fm_real.Type_size_c(type, &bytes) == MPI_SUCCESS && bytes > 0 ? (uint64_t)bytes : 0;
#else
    int bytes = 0;
    return fm_real.Type_size(type, &bytes) == MPI_SUCCESS && bytes > 0 ? (uint64_t)bytes : 0;
#endif
}

MPI_Aint fm_type_extent(MPI_Datatype type)
{
    MPI_Aint from = 0, extent = 0;
    return fm_real.Type_get_extent(type, &from, &extent) == MPI_SUCCESS ? extent : 0;
}

/* What a type is made of, if it is made of one other type; gives back whether the caller has to free that. */
static bool made_of(MPI_Datatype type, int counts[3], MPI_Datatype *inner, bool *is_own)
{
    int integers[2], combiner = MPI_COMBINER_NAMED;
    MPI_Aint addresses[1];
    int unused, combiner_of_inner = MPI_COMBINER_NAMED;

    if (counts[0] > 2 || counts[1] > 0 || counts[2] != 1)
        return false;
    if (fm_real.Type_get_contents(type, counts[0], counts[1], counts[2], integers, addresses, inner) != MPI_SUCCESS)
        return false;
    (void)combiner;
    fm_real.Type_get_envelope(*inner, &unused, &unused, &unused, &combiner_of_inner);
    *is_own = combiner_of_inner != MPI_COMBINER_NAMED;
    return true;
}

/* Whether elements of this type lie in memory as they travel: predefined ones without gaps, and contiguous rows and duplicates of such. */
bool fm_is_contiguous(MPI_Datatype type)
{
    int counts[3] = {0, 0, 0}, combiner = 0;
    MPI_Aint from = 0, extent = 0;
    MPI_Datatype inner;
    bool is_own = false, result;

    if (fm_real.Type_get_envelope(type, &counts[0], &counts[1], &counts[2], &combiner) != MPI_SUCCESS)
        return false;
    if (fm_real.Type_get_extent(type, &from, &extent) != MPI_SUCCESS || from != 0 || (uint64_t)extent != fm_type_bytes(type))
        return false;
    if (combiner == MPI_COMBINER_NAMED)
        return true;
    if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || !made_of(type, counts, &inner, &is_own))
        return false;
    result = fm_is_contiguous(inner);
    if (is_own)
        fm_real.Type_free(&inner);
    return result;
}

/* How many elements are packed at a time: MPI's own counts of bytes are ints. */
static MPI_Count step_of(uint64_t bytes)
{
    const uint64_t most = (uint64_t)1 << 30;
    return bytes == 0 || bytes > INT_MAX ? 0 : bytes > most ? 1 : (MPI_Count)(most / bytes);
}

/* Packed elements are those of the type's signature, without anything between them, as ranks on machines of one kind have them. */
bool fm_pack(const void *from, MPI_Count count, MPI_Datatype type, void *to, MPI_Comm comm)
{
    const uint64_t bytes = fm_type_bytes(type);
    const MPI_Aint extent = fm_type_extent(type);
    const MPI_Count step = step_of(bytes);

    for (MPI_Count at = 0; at < count; at += step) {
        const MPI_Count some = count - at < step ? count - at : step;
        int position = 0;
        const int room = (int)((uint64_t)some * bytes);
        if (step == 0)
            return false;
        if (fm_real.Pack((const char *)from + at * extent, (int)some, type, (char *)to + (uint64_t)at * bytes, room, &position, comm) != MPI_SUCCESS
            || position != room)
            return false;
    }
    return true;
}

bool fm_unpack(const void *from, void *to, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
    const uint64_t bytes = fm_type_bytes(type);
    const MPI_Aint extent = fm_type_extent(type);
    const MPI_Count step = step_of(bytes);

    for (MPI_Count at = 0; at < count; at += step) {
        const MPI_Count some = count - at < step ? count - at : step;
        int position = 0;
        const int room = (int)((uint64_t)some * bytes);
        if (step == 0)
            return false;
        if (fm_real.Unpack((const char *)from + (uint64_t)at * bytes, room, &position, (char *)to + at * extent, (int)some, type, comm) != MPI_SUCCESS
            || position != room)
            return false;
    }
    return true;
}
