//! A department with its books as FlatBuffers and as Protobuf: the values, and every way to write and to read them.
//!
//! The FlatBuffers side is what flatc makes of schemas/department.fbs (scripts/generate.sh). The Protobuf side is written
//! by hand below with prost's own derive, field by field and number by number as schemas/department.proto has them, which
//! is what prost-build writes too: nothing here needs protoc.

use flatbuffers::{FlatBufferBuilder, InvalidFlatbuffer, UOffsetT, WIPOffset};

use crate::verify::{Layout, Verifier};

#[allow(warnings, reason = "generated code keeps the generator's own style")]
#[path = "../generated/department_generated.rs"]
#[rustfmt::skip]
mod generated;

pub use generated::rivals as flat;

/// The messages of schemas/department.proto.
pub mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Book {
        #[prost(string, tag = "1")]
        pub isbn: String,
        #[prost(string, tag = "2")]
        pub title: String,
        #[prost(string, tag = "3")]
        pub author: String,
        #[prost(uint32, tag = "4")]
        pub pages: u32,
        #[prost(double, tag = "5")]
        pub price: f64,
        #[prost(enumeration = "Genre", tag = "6")]
        pub genre: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Department {
        #[prost(uint32, tag = "1")]
        pub id: u32,
        #[prost(string, tag = "2")]
        pub name: String,
        #[prost(double, tag = "3")]
        pub budget: f64,
        #[prost(enumeration = "Kind", tag = "4")]
        pub kind: i32,
        #[prost(message, repeated, tag = "5")]
        pub books: Vec<Book>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum Kind {
        Unknown = 0,
        Fiction = 1,
        Science = 2,
        History = 3,
        Reference = 4,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum Genre {
        Unknown = 0,
        Novel = 1,
        Poetry = 2,
        Drama = 3,
        Essay = 4,
        Textbook = 5,
        Biography = 6,
    }
}

/// How many kinds there are, and how many genres, without the unknown one.
const KINDS: u64 = 4;
const GENRES: u64 = 6;

/// A book as the program has it.
pub struct Book {
    pub isbn: String,
    pub title: String,
    pub author: String,
    pub pages: u32,
    pub price: f64,
    pub genre: u8,
}

/// A department as the program has it.
pub struct Department {
    pub id: u32,
    pub name: String,
    pub budget: f64,
    pub kind: u8,
    pub books: Vec<Book>,
}

/// Made-up values by splitmix64, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % limit
    }

    fn words(&mut self, count: u64) -> String {
        const WORDS: [&str; 16] = [
            "River",
            "Night",
            "The",
            "Winter",
            "Garden",
            "Of",
            "Mathematics",
            "A",
            "Letters",
            "Stone",
            "History",
            "Light",
            "Sea",
            "Introduction",
            "To",
            "Machine",
        ];
        let words: Vec<&str> = (0..count).map(|_| WORDS[self.below(WORDS.len() as u64) as usize]).collect();
        words.join(" ")
    }
}

impl Book {
    fn made_up(random: &mut Random) -> Self {
        let (publisher, title, check) = (random.below(10), random.below(1_000_000), random.below(10));
        let (title_words, author_words) = (3 + random.below(4), 2 + random.below(2));
        Self {
            isbn: format!("978-{publisher}-{title:06}-00-{check}"),
            title: random.words(title_words),
            author: random.words(author_words),
            pages: 60 + random.below(900) as u32,
            price: random.below(10_000) as f64 / 100.0,
            genre: 1 + random.below(GENRES) as u8,
        }
    }
}

impl Department {
    /// `count` departments of `books` books. They differ in every value, so that no length can be foretold.
    pub fn series(count: u32, books: usize) -> Vec<Self> {
        let mut random = Random(2026);
        let department = |index| Self {
            id: 1000 + index,
            name: format!("Department of {}", random.words(2)),
            budget: random.below(100_000_000) as f64 / 8.0,
            kind: 1 + random.below(KINDS) as u8,
            books: (0..books).map(|_| Book::made_up(&mut random)).collect(),
        };
        (0..count).map(department).collect()
    }

    /// Every field, as any format must give it back.
    pub fn sum(&self) -> u64 {
        let mut sum = Sum::default();
        sum.department(self.id, &self.name, self.budget, self.kind);
        for book in &self.books {
            sum.texts([&book.isbn, &book.title, &book.author]);
            sum.numbers(book.pages, book.price, book.genre);
        }
        sum.0
    }
}

/// Fields in their order, each with its own weight, so that none can stand for another.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    #[inline]
    fn add(&mut self, value: u64) {
        self.0 = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(value);
    }

    #[inline]
    fn department(&mut self, id: u32, name: &str, budget: f64, kind: u8) {
        self.texts([name]);
        self.numbers(id, budget, kind);
    }

    #[inline]
    fn texts<const COUNT: usize>(&mut self, texts: [&str; COUNT]) {
        texts.iter().for_each(|text| self.add(text.bytes().map(u64::from).sum()));
    }

    #[inline]
    fn numbers(&mut self, number: u32, amount: f64, code: u8) {
        self.add(number.into());
        self.add(amount.to_bits());
        self.add(code.into());
    }
}

/// What a writer of FlatBuffers keeps from message to message.
#[derive(Default)]
pub struct Builder {
    builder: FlatBufferBuilder<'static>,
    /// Where the books stand, last book first.
    books: Vec<UOffsetT>,
}

impl Builder {
    /// By the functions that flatc generates, as its tutorial does it.
    pub fn as_generated(&mut self, department: &Department) -> &[u8] {
        let builder = &mut self.builder;
        builder.reset();
        let mut books = Vec::with_capacity(department.books.len());
        for book in &department.books {
            let isbn = builder.create_string(&book.isbn);
            let title = builder.create_string(&book.title);
            let author = builder.create_string(&book.author);
            let book = flat::BookArgs {
                isbn: Some(isbn),
                title: Some(title),
                author: Some(author),
                pages: book.pages,
                price: book.price,
                genre: flat::Genre(book.genre),
            };
            books.push(flat::Book::create(builder, &book));
        }
        let department = flat::DepartmentArgs {
            id: department.id,
            name: Some(builder.create_string(&department.name)),
            budget: department.budget,
            kind: flat::Kind(department.kind),
            books: Some(builder.create_vector(&books)),
        };
        let root = flat::Department::create(builder, &department);
        builder.finish_minimal(root);
        builder.finished_data()
    }

    /// The builder's own calls alone, but each table in one piece: what a table holds itself, and what a vtable holds, is
    /// plain data, and is pushed as a structure. One vtable serves all books.
    pub fn tables_whole(&mut self, department: &Department) -> &[u8] {
        let builder = &mut self.builder;
        builder.reset();
        self.books.clear();
        // Where something stands is counted from the end of the buffer, which grows towards its front.
        let department_vtable = builder.push(vtables()).value();
        let book_vtable = department_vtable - size_of::<flat::DepartmentVtable>() as u32;
        for book in department.books.iter().rev() {
            let author = builder.create_string(&book.author).value();
            let title = builder.create_string(&book.title).value();
            let isbn = builder.create_string(&book.isbn).value();
            let table = (isbn + size_of::<flat::BookBody>() as u32).next_multiple_of(BODY_ALIGNMENT);
            let body = flat::BookBody::new(
                book_vtable.wrapping_sub(table) as i32,
                table - BOOK_ISBN - isbn,
                table - BOOK_TITLE - title,
                table - BOOK_AUTHOR - author,
                book.price,
                book.pages,
                flat::Genre(book.genre),
            );
            let pushed = builder.push(body).value();
            debug_assert_eq!(pushed, table, "the builder aligns as the format does");
            self.books.push(table);
        }
        let name = builder.create_string(&department.name).value();
        builder.start_vector::<WIPOffset<flat::Book<'_>>>(self.books.len());
        for &book in &self.books {
            builder.push(WIPOffset::<flat::Book<'_>>::new(book));
        }
        let books = builder.end_vector::<WIPOffset<flat::Book<'_>>>(self.books.len()).value();
        let table = (books + size_of::<flat::DepartmentBody>() as u32).next_multiple_of(BODY_ALIGNMENT);
        let body = flat::DepartmentBody::new(
            department_vtable.wrapping_sub(table) as i32,
            department.id,
            table - DEPARTMENT_NAME - name,
            table - DEPARTMENT_BOOKS - books,
            department.budget,
            flat::Kind(department.kind),
        );
        let root = builder.push(body);
        debug_assert_eq!(root.value(), table, "the builder aligns as the format does");
        builder.finish_minimal(root);
        builder.finished_data()
    }
}

/// What the bodies in schemas/department.fbs are aligned to.
const BODY_ALIGNMENT: u32 = 8;
/// From a table to its fields that are offsets.
const BOOK_ISBN: u32 = 4;
const BOOK_TITLE: u32 = 8;
const BOOK_AUTHOR: u32 = 12;
const DEPARTMENT_NAME: u32 = 8;
const DEPARTMENT_BOOKS: u32 = 12;

/// Where the fields of both bodies stand, in the order of the tables' fields.
fn vtables() -> flat::Vtables {
    let department_bytes = size_of::<flat::DepartmentVtable>() as u16;
    let department_body = size_of::<flat::DepartmentBody>() as u16;
    let department = flat::DepartmentVtable::new(
        department_bytes,
        department_body,
        4,
        DEPARTMENT_NAME as u16,
        16,
        24,
        DEPARTMENT_BOOKS as u16,
    );
    let (book_bytes, book_body) = (size_of::<flat::BookVtable>() as u16, size_of::<flat::BookBody>() as u16);
    let (isbn, title, author) = (BOOK_ISBN as u16, BOOK_TITLE as u16, BOOK_AUTHOR as u16);
    let book = flat::BookVtable::new(book_bytes, book_body, isbn, title, author, 24, 16, 28);
    flat::Vtables::new(&department, &book)
}

/// Every field of a FlatBuffer that our own verifier has looked at first; none if it refuses it.
pub fn read_checked(bytes: &[u8]) -> Option<u64> {
    verify(bytes)?;
    // SAFETY: it has just been verified.
    Some(unsafe { read_unverified(bytes) })
}

/// Whether bytes are a department: nothing in them leads out of them, and what should be text is. As
/// `flatbuffers::root`, which the bench holds it against.
pub fn verify(bytes: &[u8]) -> Option<()> {
    const DEPARTMENT: [(u16, u8); 5] = [
        (flat::Department::VT_ID, 4),
        (flat::Department::VT_NAME, 4),
        (flat::Department::VT_BUDGET, 8),
        (flat::Department::VT_KIND, 1),
        (flat::Department::VT_BOOKS, 4),
    ];
    const BOOK: [(u16, u8); 6] = [
        (flat::Book::VT_ISBN, 4),
        (flat::Book::VT_TITLE, 4),
        (flat::Book::VT_AUTHOR, 4),
        (flat::Book::VT_PAGES, 4),
        (flat::Book::VT_PRICE, 8),
        (flat::Book::VT_GENRE, 1),
    ];
    let mut verifier = Verifier::new(bytes);
    let root = verifier.target(0)?;
    let [_, name, _, _, books] = verifier.table(root, &mut Layout::of(&DEPARTMENT))?;
    verifier.text(root, name)?;
    let mut layout = Layout::of(&BOOK);
    for entry in verifier.vector(root, books)? {
        let book = verifier.target(entry)?;
        let [isbn, title, author, ..] = verifier.table(book, &mut layout)?;
        verifier.text(book, isbn)?;
        verifier.text(book, title)?;
        verifier.text(book, author)?;
    }
    Some(())
}

/// Every field of a FlatBuffer that is verified first.
pub fn read_verified(bytes: &[u8]) -> Result<u64, InvalidFlatbuffer> {
    Ok(sum_flat(&flatbuffers::root::<flat::Department<'_>>(bytes)?))
}

/// Every field of a FlatBuffer, as it stands.
///
/// # Safety
/// `bytes` is a department: what is not verified is not bounded either.
pub unsafe fn read_unverified(bytes: &[u8]) -> u64 {
    // SAFETY: the caller's promise.
    sum_flat(&unsafe { flatbuffers::root_unchecked::<flat::Department<'_>>(bytes) })
}

fn sum_flat(department: &flat::Department<'_>) -> u64 {
    let mut sum = Sum::default();
    let name = department.name().unwrap_or_default();
    sum.department(department.id(), name, department.budget(), department.kind().0);
    for book in department.books().unwrap_or_default() {
        let text = [book.isbn(), book.title(), book.author()];
        sum.texts(text.map(Option::unwrap_or_default));
        sum.numbers(book.pages(), book.price(), book.genre().0);
    }
    sum.0
}

/// The message of these values.
pub fn message(department: &Department) -> proto::Department {
    let book = |book: &Book| proto::Book {
        isbn: book.isbn.clone(),
        title: book.title.clone(),
        author: book.author.clone(),
        pages: book.pages,
        price: book.price,
        genre: book.genre.into(),
    };
    proto::Department {
        id: department.id,
        name: department.name.clone(),
        budget: department.budget,
        kind: department.kind.into(),
        books: department.books.iter().map(book).collect(),
    }
}

/// Every field of a message.
pub fn sum_message(department: &proto::Department) -> u64 {
    let mut sum = Sum::default();
    sum.department(department.id, &department.name, department.budget, department.kind() as u8);
    for book in &department.books {
        sum.texts([&book.isbn, &book.title, &book.author]);
        sum.numbers(book.pages, book.price, book.genre() as u8);
    }
    sum.0
}
