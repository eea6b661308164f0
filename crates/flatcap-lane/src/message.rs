//! The messages of the push socket (docs/PUSH.md, "Messages"). Each message is one packet. This
//! module does no I/O, because the caller owns sockets and descriptors.

use super::layout::SLOTS;

/// Maximum length of a packet, in bytes. Schemas may be longer because they are sent as memory and
/// not in a packet.
pub const PACKET_BYTES_MAX: usize = 4096;
/// The version of the protocol.
pub const VERSION: u32 = 1;
/// Maximum length of the name of a client, a source or a label, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum length of a root name, a thread name or a label value, in bytes.
const TEXT_BYTES_MAX: usize = 255;
/// Maximum number of labels of a source. The number is limited because the labels are in every
/// segment's header.
const LABELS_MAX: usize = 16;
/// The kind of a reply is the kind of its request plus this number.
const REPLY: u32 = 0x8000;
const ERROR: u32 = 0xFFFF;
const ENDED: u32 = 0xFFFE;
const RESCUED: u32 = 0xFFFD;

const HELLO: u32 = 1;
const SOURCE: u32 = 2;
const LANE: u32 = 3;
const BIND: u32 = 4;
const WAKE: u32 = 5;
const TRIGGER: u32 = 6;
const RESUME: u32 = 7;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushRequest {
    /// The first message of a connection.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// The client's name.
        client: String,
    },
    /// Registers a source. If the source has a root table, the client sends the schema as a
    /// descriptor.
    Source(SourceRegistration),
    /// Requests a lane.
    Lane {
        /// Size of the ring in bytes. 0 means the default size.
        bytes: u64,
        /// The thread's id.
        thread: u32,
        /// The thread's name. The name may be empty.
        thread_name: String,
    },
    /// Binds a source to its slot in a lane.
    Bind {
        /// The lane.
        lane: u32,
        /// The number that the client gave to the source.
        source: u32,
    },
    /// Reports that the lane is more than half full. This message has no reply.
    Wake {
        /// The lane.
        lane: u32,
    },
    /// Fires the black box.
    Trigger {
        /// Zero.
        flags: u32,
        /// The reason, as a text for people.
        text: String,
    },
    /// Hands over a lane of an earlier connection. The lane is sent as a descriptor.
    Resume(LaneResumption),
}

/// The description of a source by its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRegistration {
    /// The number that the client gave to the source. The number is less than 64. In every lane of
    /// the client, this number is the slot of the source.
    pub number: u32,
    /// Nominal period in nanoseconds. 0 if the source has no period.
    pub period_ns: u64,
    /// The source's name.
    pub name: String,
    /// Full name of the payload's root table. Empty if the payload is opaque.
    pub root: String,
    /// Names and values of the source's labels.
    pub labels: Vec<(String, String)>,
}

/// A lane of an earlier connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneResumption {
    /// The lane's run.
    pub run_id: u64,
    /// The lane's number in the run.
    pub lane: u32,
    /// Whether the lane's writer has stopped.
    pub is_final: bool,
}

/// A message of the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushReply {
    /// Reply to `hello`.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// The recorder's run.
        run_id: u64,
        /// Maximum number of sources of the client.
        sources_max: u32,
        /// Maximum number of lanes of the client.
        lanes_max: u32,
    },
    /// Reply to `source`.
    Source {
        /// The number that the client gave to the source.
        number: u32,
    },
    /// Reply to `lane`. The memory of the lane is sent as a descriptor.
    Lane {
        /// The lane's number.
        lane: u32,
        /// Length of the lane's memory, in bytes.
        bytes: u64,
    },
    /// Reply to `bind`.
    Bind {
        /// The id that the recorder gives to this source in this lane.
        id: u16,
        /// Number of the source's next sample.
        next_seq: u64,
    },
    /// Reply to `trigger`.
    Trigger,
    /// Reply to `resume`.
    Resume,
    /// An error. The recorder sends this message instead of the expected reply.
    Error {
        /// The kind of error.
        code: PushErrorCode,
        /// The error message, as a text for people.
        text: String,
    },
    /// The recorder does not read a lane any more. This message may be sent at any time.
    Ended {
        /// The lane.
        lane: u32,
        /// The reason, as a text for people.
        reason: String,
    },
    /// The client does not have to keep a lane any more. This message may be sent at any time. The
    /// recorder has two possible reasons for this message. One reason is that the lane was resumed,
    /// its writer has stopped, and its remaining samples are in the recording. The other reason is
    /// that the run of the lane no longer exists.
    Rescued {
        /// The lane's run.
        run_id: u64,
        /// The lane's number in the run.
        lane: u32,
    },
}

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushErrorCode {
    /// The version is unknown.
    Version,
    /// The message is malformed or has arrived at the wrong time.
    Malformed,
    /// The client is not permitted to make this request.
    Denied,
    /// A limit was reached.
    Limit,
    /// The schema was refused.
    Schema,
    /// The requested lane or source does not exist.
    Unknown,
    /// The lane to be resumed belongs to no known run.
    Stale,
    /// The request cannot be served now.
    Unavailable,
}

/// The reason why a packet is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The packet is empty, or its kind is unknown.
    #[error("a packet of an unknown kind; valid are 1 (hello) to 7 (resume)")]
    Kind,
    /// The packet ends within a field, or continues after its last field.
    #[error("a packet of kind {kind} of {bytes} bytes, which its fields do not fill exactly")]
    Length {
        /// The packet's kind.
        kind: u32,
        /// The packet's length.
        bytes: usize,
    },
    /// A field has an invalid value.
    #[error("a packet of kind {kind} with a wrong {field}: {expected}")]
    Value {
        /// The packet's kind.
        kind: u32,
        /// The field.
        field: &'static str,
        /// The valid values.
        expected: &'static str,
    },
}

impl PushErrorCode {
    const ALL: [Self; 8] = [
        Self::Version,
        Self::Malformed,
        Self::Denied,
        Self::Limit,
        Self::Schema,
        Self::Unknown,
        Self::Stale,
        Self::Unavailable,
    ];

    fn number(self) -> u32 {
        (1..).zip(Self::ALL).find(|(_, code)| *code == self).map_or(0, |(number, _)| number)
    }

    /// Returns whether the recorder closes the connection after this error.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::Version | Self::Malformed | Self::Denied)
    }
}

impl PushRequest {
    /// Returns the packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, client } => packet(HELLO).number(*version).text(client),
            Self::Source(source) => source.encode(),
            Self::Lane { bytes, thread, thread_name } => {
                packet(LANE).long(*bytes).number(*thread).text(thread_name)
            }
            Self::Bind { lane, source } => packet(BIND).number(*lane).number(*source),
            Self::Wake { lane } => packet(WAKE).number(*lane),
            Self::Trigger { flags, text } => packet(TRIGGER).number(*flags).text(text),
            Self::Resume(LaneResumption { run_id, lane, is_final }) => {
                packet(RESUME).long(*run_id).number(*lane).number((*is_final).into())
            }
        }
        .0
    }

    /// Reads a packet. Refuses strings that are longer than their limits.
    ///
    /// # Errors
    /// Returns the reason why the packet is not a request.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut fields = Fields::new(bytes)?;
        let request = match fields.kind {
            HELLO => Self::Hello { version: fields.number()?, client: fields.name("name of the client")? },
            SOURCE => Self::Source(SourceRegistration::decode(&mut fields)?),
            LANE => Self::Lane {
                bytes: fields.long()?,
                thread: fields.number()?,
                thread_name: fields.text("name of the thread", TEXT_BYTES_MAX)?,
            },
            BIND => Self::Bind { lane: fields.number()?, source: fields.source()? },
            WAKE => Self::Wake { lane: fields.number()? },
            TRIGGER => {
                let (flags, text) = (fields.number()?, fields.text("text", PACKET_BYTES_MAX)?);
                fields.expect(flags == 0, "flags", "0")?;
                Self::Trigger { flags, text }
            }
            RESUME => {
                let (run_id, lane, flags) = (fields.long()?, fields.number()?, fields.number()?);
                fields.expect(flags <= 1, "flags", "0 or 1")?;
                Self::Resume(LaneResumption { run_id, lane, is_final: flags == 1 })
            }
            _ => return Err(MessageError::Kind),
        };
        fields.end()?;
        Ok(request)
    }

    /// Returns the number of descriptors that are sent with this request.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Source(source) => usize::from(!source.root.is_empty()),
            Self::Resume(_) => 1,
            _ => 0,
        }
    }
}

impl SourceRegistration {
    fn encode(&self) -> Packet {
        let count = u16::try_from(self.labels.len()).unwrap_or(u16::MAX);
        let packet = packet(SOURCE)
            .number(self.number)
            .long(self.period_ns)
            .text(&self.name)
            .text(&self.root)
            .count(count);
        self.labels.iter().fold(packet, |packet, (name, value)| packet.text(name).text(value))
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, MessageError> {
        let number = fields.source()?;
        let period_ns = fields.long()?;
        let name = fields.name("name of the source")?;
        let root = fields.text("root", TEXT_BYTES_MAX)?;
        let count = usize::from(fields.count()?);
        fields.expect(count <= LABELS_MAX, "number of labels", "at most 16")?;
        let label =
            |_| Ok((fields.name("name of a label")?, fields.text("value of a label", TEXT_BYTES_MAX)?));
        let labels = (0..count).map(label).collect::<Result<_, MessageError>>()?;
        Ok(Self { number, period_ns, name, root, labels })
    }
}

impl PushReply {
    /// Returns the packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, run_id, sources_max, lanes_max } => {
                packet(REPLY | HELLO).number(*version).long(*run_id).number(*sources_max).number(*lanes_max)
            }
            Self::Source { number } => packet(REPLY | SOURCE).number(*number),
            Self::Lane { lane, bytes } => packet(REPLY | LANE).number(*lane).long(*bytes),
            Self::Bind { id, next_seq } => packet(REPLY | BIND).number((*id).into()).long(*next_seq),
            Self::Trigger => packet(REPLY | TRIGGER),
            Self::Resume => packet(REPLY | RESUME),
            Self::Error { code, text } => packet(ERROR).number(code.number()).text(text),
            Self::Ended { lane, reason } => packet(ENDED).number(*lane).text(reason),
            Self::Rescued { run_id, lane } => packet(RESCUED).long(*run_id).number(*lane),
        }
        .0
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// Returns the reason why the packet is not a reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        const HELLO_REPLY: u32 = REPLY | HELLO;
        const SOURCE_REPLY: u32 = REPLY | SOURCE;
        const LANE_REPLY: u32 = REPLY | LANE;
        const BIND_REPLY: u32 = REPLY | BIND;
        const TRIGGER_REPLY: u32 = REPLY | TRIGGER;
        const RESUME_REPLY: u32 = REPLY | RESUME;
        let mut fields = Fields::new(bytes)?;
        let reply = match fields.kind {
            HELLO_REPLY => Self::Hello {
                version: fields.number()?,
                run_id: fields.long()?,
                sources_max: fields.number()?,
                lanes_max: fields.number()?,
            },
            SOURCE_REPLY => Self::Source { number: fields.source()? },
            LANE_REPLY => Self::Lane { lane: fields.number()?, bytes: fields.long()? },
            BIND_REPLY => {
                let id = u16::try_from(fields.number()?);
                fields.expect(id.is_ok(), "id", "at most 65535")?;
                Self::Bind { id: id.unwrap_or_default(), next_seq: fields.long()? }
            }
            TRIGGER_REPLY => Self::Trigger,
            RESUME_REPLY => Self::Resume,
            ERROR => {
                let number = fields.number()?;
                let code = (1..).zip(PushErrorCode::ALL).find(|(code, _)| *code == number);
                fields.expect(code.is_some(), "code", "1 to 8")?;
                let code = code.map_or(PushErrorCode::Malformed, |(_, code)| code);
                Self::Error { code, text: fields.text("text", PACKET_BYTES_MAX)? }
            }
            ENDED => Self::Ended { lane: fields.number()?, reason: fields.text("reason", PACKET_BYTES_MAX)? },
            RESCUED => Self::Rescued { run_id: fields.long()?, lane: fields.number()? },
            _ => return Err(MessageError::Kind),
        };
        fields.end()?;
        Ok(reply)
    }
}

/// A packet that is being written.
struct Packet(Vec<u8>);

fn packet(kind: u32) -> Packet {
    Packet(kind.to_le_bytes().to_vec())
}

impl Packet {
    fn count(mut self, number: u16) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    /// Adds a string. Truncates the string at the end of the packet.
    fn text(mut self, text: &str) -> Self {
        let space = PACKET_BYTES_MAX.saturating_sub(self.0.len() + 2);
        let end = (0..=space.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let text = text.get(..end.unwrap_or_default()).unwrap_or_default();
        self.0.extend(u16::try_from(text.len()).unwrap_or_default().to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }
}

/// The fields of a packet that have not been read yet.
struct Fields<'a> {
    kind: u32,
    bytes: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let mut fields = Self { kind: 0, bytes: bytes.len(), rest: bytes };
        fields.kind = fields.number().map_err(|_| MessageError::Kind)?;
        Ok(fields)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(self.wrong_length())?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn wrong_length(&self) -> MessageError {
        MessageError::Length { kind: self.kind, bytes: self.bytes }
    }

    fn count(&mut self) -> Result<u16, MessageError> {
        self.take().map(u16::from_le_bytes)
    }

    fn number(&mut self) -> Result<u32, MessageError> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_le_bytes)
    }

    fn source(&mut self) -> Result<u32, MessageError> {
        let number = self.number()?;
        self.expect((number as usize) < SLOTS, "number of the source", "0 to 63")?;
        Ok(number)
    }

    fn text(&mut self, field: &'static str, bytes_max: usize) -> Result<String, MessageError> {
        let length = usize::from(self.count()?);
        let (text, rest) = self.rest.split_at_checked(length).ok_or(self.wrong_length())?;
        self.rest = rest;
        self.expect(length <= bytes_max, field, "at most 255 bytes")?;
        let text = std::str::from_utf8(text);
        self.expect(text.is_ok(), field, "UTF-8")?;
        Ok(text.unwrap_or_default().to_owned())
    }

    /// Reads a name, which has 1 to 64 printable characters.
    fn name(&mut self, field: &'static str) -> Result<String, MessageError> {
        let name = self.text(field, NAME_BYTES_MAX)?;
        let is_name = !name.is_empty() && !name.chars().any(char::is_control);
        self.expect(is_name, field, "1 to 64 bytes without control characters")?;
        Ok(name)
    }

    fn expect(&self, is_so: bool, field: &'static str, expected: &'static str) -> Result<(), MessageError> {
        is_so.then_some(()).ok_or(MessageError::Value { kind: self.kind, field, expected })
    }

    fn end(&self) -> Result<(), MessageError> {
        self.rest.is_empty().then_some(()).ok_or(self.wrong_length())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests() -> Vec<PushRequest> {
        let source = SourceRegistration {
            number: 63,
            period_ns: 1,
            name: "orders".into(),
            root: "acme.Order".into(),
            labels: vec![("team".into(), "payments".into()), ("empty".into(), String::new())],
        };
        vec![
            PushRequest::Hello { version: VERSION, client: "payments".into() },
            PushRequest::Source(source),
            PushRequest::Lane { bytes: 1 << 20, thread: 7, thread_name: String::new() },
            PushRequest::Bind { lane: 9, source: 3 },
            PushRequest::Wake { lane: 9 },
            PushRequest::Trigger { flags: 0, text: "slow order 4711".into() },
            PushRequest::Resume(LaneResumption { run_id: u64::MAX, lane: 2, is_final: true }),
        ]
    }

    fn replies() -> Vec<PushReply> {
        vec![
            PushReply::Hello { version: VERSION, run_id: 5, sources_max: 64, lanes_max: 1024 },
            PushReply::Source { number: 1 },
            PushReply::Lane { lane: 1, bytes: 4096 },
            PushReply::Bind { id: 4095, next_seq: 12 },
            PushReply::Trigger,
            PushReply::Resume,
            PushReply::Error { code: PushErrorCode::Unavailable, text: "no black box".into() },
            PushReply::Ended { lane: 3, reason: "a bad frame".into() },
            PushReply::Rescued { run_id: u64::MAX, lane: 3 },
        ]
    }

    // Proves that messages are read back as they were written, and that a message is refused if it
    // is truncated or has an extra byte.
    #[test]
    fn messages_are_read_back() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(PushRequest::decode(&bytes), Ok(request.clone()));
            for cut in 0..bytes.len() {
                assert!(PushRequest::decode(&bytes[..cut]).is_err(), "{request:?} cut to {cut}");
            }
            assert!(PushRequest::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        for reply in replies() {
            let bytes = reply.encode();
            assert_eq!(PushReply::decode(&bytes), Ok(reply.clone()));
            assert!((0..bytes.len()).all(|cut| PushReply::decode(&bytes[..cut]).is_err()));
        }
    }

    // Proves that a writer truncates strings that are too long, that a reader refuses such strings,
    // and that no packet exceeds the limit.
    #[test]
    fn texts_have_limits() {
        let long = "\u{e4}".repeat(PACKET_BYTES_MAX);
        let bytes = PushReply::Error { code: PushErrorCode::Limit, text: long.clone() }.encode();
        assert!(bytes.len() <= PACKET_BYTES_MAX && PushReply::decode(&bytes).is_ok());
        let bytes = PushRequest::Hello { version: 1, client: long }.encode();
        let wrong = PushRequest::decode(&bytes).unwrap_err();
        assert!(matches!(wrong, MessageError::Value { field: "name of the client", .. }), "{wrong}");
        assert!(
            PushRequest::decode(&PushRequest::Hello { version: 1, client: "a\nb".into() }.encode()).is_err()
        );
        assert!(PushRequest::decode(&PushRequest::Bind { lane: 0, source: 64 }.encode()).is_err());
    }

    proptest! {
        // Proves that no input causes a panic in a decoder.
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..9_u32) {
            let bytes = [&kind.to_le_bytes()[..], &bytes].concat();
            let decoded = PushRequest::decode(&bytes).map(|request| request.encode());
            prop_assert!(decoded.is_err() || decoded == Ok(bytes.clone()));
            drop(PushReply::decode(&[&(REPLY | kind).to_le_bytes()[..], &bytes].concat()));
        }
    }
}
