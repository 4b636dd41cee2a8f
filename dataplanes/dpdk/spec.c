/* See spec.h. A `.spec` is lines of words; blocks end with a line that is a closing brace. */
#include "spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 512,
    WORDS_MAX = 20,
    FIELDS_MAX = 300,
    /* Register and header fields of 256 elements, a few instructions each. */
    INSTRUCTIONS_MAX = 1 << 14,
    ACTIONS_MAX = 32,
};

struct reader {
    struct rte_swx_pipeline *pipeline;
    FILE *file;
    const char *path;
    int line;
    /* The line's text as instructions want it, and its words. */
    char text[LINE_BYTES];
    char split[LINE_BYTES];
    char *words[WORDS_MAX];
    int count;
};

static int fail(const struct reader *reader, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: ", reader->path, reader->line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return -1;
}

/* What DPDK says of the block that has just ended. */
static int judged(const struct reader *reader, int code, const char *what, const char *name)
{
    return code == 0 ? 0 : fail(reader, "DPDK refuses the %s %s: %s", what, name, strerror(-code));
}

/* Reads the next line that has words. Returns 1, 0 at the end of the file, -1 where a line is too long. */
static int next_line(struct reader *reader)
{
    while (fgets(reader->text, sizeof(reader->text), reader->file) != NULL) {
        char *saved = NULL;
        reader->line++;
        if (strlen(reader->text) == sizeof(reader->text) - 1)
            return fail(reader, "a line of more than %d bytes", LINE_BYTES - 2);
        reader->text[strcspn(reader->text, ";\r\n")] = '\0';
        memcpy(reader->split, reader->text, sizeof(reader->split));
        reader->count = 0;
        for (char *word = strtok_r(reader->split, " \t", &saved); word != NULL; word = strtok_r(NULL, " \t", &saved)) {
            if (reader->count == WORDS_MAX)
                return fail(reader, "a line of more than %d words", WORDS_MAX);
            reader->words[reader->count++] = word;
        }
        if (reader->count > 0)
            return 1;
    }
    return 0;
}

/* The next line of a block: 1, 0 where it is the block's end, -1 where the file ends. */
static int next_in_block(struct reader *reader)
{
    int found = next_line(reader);
    if (found == 0)
        return fail(reader, "the file ends inside a block");
    return found < 0 ? -1 : strcmp(reader->words[0], "}") != 0;
}

static int is(const struct reader *reader, int at, const char *word)
{
    return at < reader->count && strcmp(reader->words[at], word) == 0;
}

static char *kept(const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL)
        abort();
    return copy;
}

/* struct NAME {, and lines "bit<N> FIELD". */
static int read_struct(struct reader *reader)
{
    static struct rte_swx_field_params fields[FIELDS_MAX];
    uint32_t count = 0;
    int inside;
    char *name;
    if (reader->count != 3 || !is(reader, 2, "{"))
        return fail(reader, "expected: struct NAME {");
    name = kept(reader->words[1]);
    while ((inside = next_in_block(reader)) > 0) {
        unsigned bits;
        char close;
        if (reader->count != 2 || sscanf(reader->words[0], "bit<%u%c", &bits, &close) != 2 || close != '>')
            return fail(reader, "expected: bit<N> FIELD");
        if (count == FIELDS_MAX)
            return fail(reader, "more than %d fields", FIELDS_MAX);
        fields[count++] = (struct rte_swx_field_params){.name = kept(reader->words[1]), .n_bits = bits};
    }
    if (inside < 0)
        return -1;
    return judged(reader, rte_swx_pipeline_struct_type_register(reader->pipeline, name, fields, count, 0), "struct", name);
}

/* The lines of a block of instructions; their number, or -1. */
static int read_instructions(struct reader *reader, const char **instructions)
{
    int count = 0;
    int inside;
    while ((inside = next_in_block(reader)) > 0) {
        if (count == INSTRUCTIONS_MAX)
            return fail(reader, "more than %d instructions", INSTRUCTIONS_MAX);
        instructions[count++] = kept(reader->text);
    }
    return inside < 0 ? -1 : count;
}

/* action NAME args none|instanceof STRUCT {, and instructions. */
static int read_action(struct reader *reader)
{
    static const char *instructions[INSTRUCTIONS_MAX];
    int without = reader->count == 5 && is(reader, 2, "args") && is(reader, 3, "none") && is(reader, 4, "{");
    int with = reader->count == 6 && is(reader, 2, "args") && is(reader, 3, "instanceof") && is(reader, 5, "{");
    char *name, *arguments;
    int count;
    if (!without && !with)
        return fail(reader, "expected: action NAME args none|instanceof STRUCT {");
    name = kept(reader->words[1]);
    arguments = with ? kept(reader->words[4]) : NULL;
    count = read_instructions(reader, instructions);
    if (count < 0)
        return -1;
    return judged(reader, rte_swx_pipeline_action_config(reader->pipeline, name, arguments, instructions, (uint32_t)count), "action", name);
}

static int read_key(struct reader *reader, struct rte_swx_match_field_params *keys, uint32_t *count)
{
    int inside;
    while ((inside = next_in_block(reader)) > 0) {
        if (reader->count != 2 || *count == FIELDS_MAX)
            return fail(reader, "expected: FIELD exact|wildcard|lpm");
        keys[*count].name = kept(reader->words[0]);
        if (is(reader, 1, "exact"))
            keys[*count].match_type = RTE_SWX_TABLE_MATCH_EXACT;
        else if (is(reader, 1, "wildcard"))
            keys[*count].match_type = RTE_SWX_TABLE_MATCH_WILDCARD;
        else if (is(reader, 1, "lpm"))
            keys[*count].match_type = RTE_SWX_TABLE_MATCH_LPM;
        else
            return fail(reader, "%s: expected exact, wildcard or lpm", reader->words[1]);
        (*count)++;
    }
    return inside;
}

static int read_actions(struct reader *reader, const char **actions, uint32_t *count)
{
    int inside;
    while ((inside = next_in_block(reader)) > 0) {
        if (reader->count != 1 || *count == ACTIONS_MAX)
            return fail(reader, "expected the name of an action, and at most %d of them", ACTIONS_MAX);
        actions[(*count)++] = kept(reader->words[0]);
    }
    return inside;
}

/* default_action NAME args none|VALUES [const]; VALUES are names and numbers in turn. */
static int read_default(struct reader *reader, struct rte_swx_pipeline_table_params *table)
{
    char values[LINE_BYTES] = "";
    int last = reader->count;
    if (reader->count < 4 || !is(reader, 2, "args"))
        return fail(reader, "expected: default_action NAME args none|VALUES [const]");
    table->default_action_name = kept(reader->words[1]);
    table->default_action_is_const = is(reader, last - 1, "const");
    last -= table->default_action_is_const;
    if (is(reader, 3, "none"))
        return last == 4 ? 0 : fail(reader, "arguments after none");
    for (int at = 3; at < last; at++) {
        strcat(values, reader->words[at]);
        strcat(values, " ");
    }
    table->default_action_args = kept(values);
    return 0;
}

/* table NAME {, and in it key, actions, default_action, size. */
static int read_table(struct reader *reader)
{
    static struct rte_swx_match_field_params keys[FIELDS_MAX];
    static const char *actions[ACTIONS_MAX];
    struct rte_swx_pipeline_table_params table = {.fields = keys, .action_names = actions};
    uint32_t size = 0;
    int inside;
    char *name;
    if (reader->count != 3 || !is(reader, 2, "{"))
        return fail(reader, "expected: table NAME {");
    name = kept(reader->words[1]);
    while ((inside = next_in_block(reader)) > 0) {
        int failed = 0;
        if (is(reader, 0, "key") && is(reader, 1, "{"))
            failed = read_key(reader, keys, &table.n_fields);
        else if (is(reader, 0, "actions") && is(reader, 1, "{"))
            failed = read_actions(reader, actions, &table.n_actions);
        else if (is(reader, 0, "default_action"))
            failed = read_default(reader, &table);
        else if (is(reader, 0, "size") && reader->count == 2)
            size = (uint32_t)strtoul(reader->words[1], NULL, 0);
        else
            return fail(reader, "%s: expected key {, actions {, default_action or size", reader->words[0]);
        if (failed != 0)
            return -1;
    }
    if (inside < 0)
        return -1;
    return judged(reader, rte_swx_pipeline_table_config(reader->pipeline, name, &table, NULL, NULL, size), "table", name);
}

/* regarray NAME size N initval V. */
static int read_registers(struct reader *reader)
{
    uint32_t size;
    uint64_t first;
    if (reader->count != 6 || !is(reader, 2, "size") || !is(reader, 4, "initval"))
        return fail(reader, "expected: regarray NAME size N initval V");
    size = (uint32_t)strtoul(reader->words[3], NULL, 0);
    first = strtoull(reader->words[5], NULL, 0);
    return judged(reader, rte_swx_pipeline_regarray_config(reader->pipeline, reader->words[1], size, first), "regarray", reader->words[1]);
}

/* header NAME instanceof STRUCT, or metadata instanceof STRUCT. */
static int read_instance(struct reader *reader)
{
    if (is(reader, 0, "metadata") && reader->count == 3 && is(reader, 1, "instanceof"))
        return judged(reader, rte_swx_pipeline_packet_metadata_register(reader->pipeline, reader->words[2]), "metadata", reader->words[2]);
    if (is(reader, 0, "header") && reader->count == 4 && is(reader, 2, "instanceof"))
        return judged(reader, rte_swx_pipeline_packet_header_register(reader->pipeline, reader->words[1], reader->words[3]), "header", reader->words[1]);
    return fail(reader, "expected: header NAME instanceof STRUCT, or metadata instanceof STRUCT");
}

static int read_apply(struct reader *reader)
{
    static const char *instructions[INSTRUCTIONS_MAX];
    int count;
    if (reader->count != 2 || !is(reader, 1, "{"))
        return fail(reader, "expected: apply {");
    count = read_instructions(reader, instructions);
    if (count < 0)
        return -1;
    return judged(reader, rte_swx_pipeline_instructions_config(reader->pipeline, instructions, (uint32_t)count), "block", "apply");
}

static int read_block(struct reader *reader)
{
    if (is(reader, 0, "struct"))
        return read_struct(reader);
    if (is(reader, 0, "header") || is(reader, 0, "metadata"))
        return read_instance(reader);
    if (is(reader, 0, "action"))
        return read_action(reader);
    if (is(reader, 0, "table"))
        return read_table(reader);
    if (is(reader, 0, "regarray"))
        return read_registers(reader);
    if (is(reader, 0, "apply"))
        return read_apply(reader);
    return fail(reader, "%s: expected struct, header, metadata, action, table, regarray or apply", reader->words[0]);
}

int spec_configure(struct rte_swx_pipeline *pipeline, const char *path)
{
    struct reader reader = {.pipeline = pipeline, .path = path, .file = fopen(path, "r")};
    int found;
    if (reader.file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    while ((found = next_line(&reader)) > 0) {
        if (read_block(&reader) != 0) {
            found = -1;
            break;
        }
    }
    fclose(reader.file);
    return found;
}
