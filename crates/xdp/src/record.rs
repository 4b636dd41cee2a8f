//! Values of the maps that programs in the kernel share with this process: described once, here, for both sides. The C header has them as
//! structs; here, fields are read and written by name in the bytes of a value.

/// A field of a value: an unsigned number, an array of them, or a lock.
#[derive(Clone, Copy, Debug)]
pub struct RecordField {
    /// Its name.
    pub name: &'static str,
    /// Bytes of an item: 1, 2, 4 or 8.
    pub bytes: usize,
    /// Items; 1 where it is no array.
    pub count: usize,
    /// Whether it is the kernel's spin lock.
    pub is_lock: bool,
}

/// A number of so many bytes.
pub const fn number(name: &'static str, bytes: usize) -> RecordField {
    RecordField { name, bytes, count: 1, is_lock: false }
}

/// An array of numbers.
pub const fn array(name: &'static str, bytes: usize, count: usize) -> RecordField {
    RecordField { name, bytes, count, is_lock: false }
}

/// A spin lock, which comes first.
pub const fn lock(name: &'static str) -> RecordField {
    RecordField { name, bytes: 4, count: 1, is_lock: true }
}

/// The layout of a value: fields one behind the other, each at a multiple of its items' length.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its name in C.
    pub name: &'static str,
    /// What it is, for the header.
    pub what: &'static str,
    /// All of it.
    pub fields: &'static [RecordField],
}

impl Record {
    /// Length of a value in bytes: a multiple of 8, as the kernel keeps it.
    ///
    /// # Panics
    /// Where a field is not at a multiple of its items' length: C would put a gap before it.
    pub const fn bytes(&self) -> usize {
        let (mut at, mut index) = (0, 0);
        while index < self.fields.len() {
            let field = self.fields[index];
            assert!(at % field.bytes == 0, "a field is not aligned");
            at += field.bytes * field.count;
            index += 1;
        }
        assert!(at % 8 == 0, "a record is a multiple of 8 bytes");
        at
    }

    /// A field, and where its first item is.
    ///
    /// # Panics
    /// Where there is none of this name.
    pub fn field(&self, name: &str) -> (usize, RecordField) {
        let mut at = 0;
        for field in self.fields {
            if field.name == name {
                return (at, *field);
            }
            at += field.bytes * field.count;
        }
        panic!("{} has no field {name}", self.name)
    }

    /// Item `index` of a field.
    ///
    /// # Panics
    /// Where there is no such field or item.
    pub fn item(&self, value: &[u8], name: &str, index: usize) -> u64 {
        let (at, field) = self.field(name);
        assert!(index < field.count, "{name} has {} items", field.count);
        let bytes = &value[at + index * field.bytes..][..field.bytes];
        let mut word = [0; 8];
        word[..field.bytes].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    /// A field that is no array.
    ///
    /// # Panics
    /// Where there is no such field.
    pub fn get(&self, value: &[u8], name: &str) -> u64 {
        self.item(value, name, 0)
    }

    /// The bytes of an array of bytes.
    ///
    /// # Panics
    /// Where there is no such field.
    pub fn slice<'a>(&self, value: &'a [u8], name: &str) -> &'a [u8] {
        let (at, field) = self.field(name);
        &value[at..at + field.bytes * field.count]
    }

    /// Writes item `index` of a field.
    ///
    /// # Panics
    /// Where there is no such field or item.
    pub fn set_item(&self, value: &mut [u8], name: &str, index: usize, number: u64) {
        let (at, field) = self.field(name);
        assert!(index < field.count, "{name} has {} items", field.count);
        value[at + index * field.bytes..][..field.bytes].copy_from_slice(&number.to_le_bytes()[..field.bytes]);
    }

    /// Writes a field that is no array.
    ///
    /// # Panics
    /// Where there is no such field.
    pub fn set(&self, value: &mut [u8], name: &str, number: u64) {
        self.set_item(value, name, 0, number);
    }

    /// The struct in C.
    pub(crate) fn c(&self) -> String {
        let mut text = format!("/* {} */\nstruct {} {{\n", self.what, self.name);
        for field in self.fields {
            let of = if field.is_lock { "struct bpf_spin_lock".to_owned() } else { format!("__u{}", 8 * field.bytes) };
            let items = if field.count == 1 { String::new() } else { format!("[{}]", field.count) };
            text += &format!("\t{of} {}{items};\n", field.name);
        }
        text + "};\n\n"
    }
}
