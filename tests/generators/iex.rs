//! Generates captures of IEX's feeds that resemble a real one: packets, mix of messages,
//! heartbeats, restarts. Plain Rust; the same shape gives the same bytes on every machine. Shared
//! by tests and benches (`#[path]`).
//!
//! The shape is that of 392,000 messages of DEEP 1.0 from April 2017: each epoch begins with a
//! system event and three states of each symbol, in full packets (72 of 100 messages). Trades (77
//! of 100) and price levels (23) follow, mostly one per packet. 7 of 100 packets are heartbeats.
//! Messages are stamped up to half a second before the messages that precede them.
#![allow(dead_code, unreachable_pub, reason = "each user takes its part")]
#![allow(
    clippy::big_endian_bytes,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "network byte order; numbers that are cut on purpose"
)]

/// The feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    Deep,
    Tops,
}

impl Feed {
    /// Returns the message protocol id of this feed.
    pub fn protocol(self) -> u16 {
        match self {
            Self::Deep => 0x8004,
            Self::Tops => 0x8003,
        }
    }
}

/// Parameters of a generated feed.
#[derive(Debug, Clone)]
pub struct Shape {
    pub feed: Feed,
    pub seed: u64,
    /// Approximate number of messages.
    pub messages: usize,
    /// Number of times the sequence begins at 1, including the first.
    pub epochs: u32,
    pub channel: u32,
    pub session: u32,
    /// The exchange's time of the first message.
    pub begin_ns: i64,
}

impl Shape {
    /// Returns the shape of the real capture: twelve epochs in one session.
    pub fn real(feed: Feed, messages: usize, seed: u64) -> Self {
        let begin_ns = 1_493_128_800_000_000_000;
        Self { feed, seed, messages, epochs: 12, channel: 1, session: 1_132_527_616, begin_ns }
    }
}

/// One transport segment as captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Capture time, in whole microseconds.
    pub wall_ns: i64,
    pub epoch: u32,
    /// Sequence number of the first message.
    pub first: u64,
    /// Number of messages; 0 for a heartbeat.
    pub count: u16,
    /// The transport header and the messages: the payload of UDP.
    pub segment: Vec<u8>,
}

impl Packet {
    /// Returns the messages, type byte first.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.segment[HEADER_BYTES..];
        std::iter::from_fn(move || {
            let (length, after_length) = rest.split_first_chunk()?;
            let (message, after_message) = after_length.split_at(usize::from(u16::from_le_bytes(*length)));
            rest = after_message;
            Some(message)
        })
    }
}

/// Bytes of the transport header.
pub const HEADER_BYTES: usize = 40;
/// Maximum bytes of messages in a packet.
const PAYLOAD_BYTES_MAX: usize = 1400;
/// splitmix64.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn index(&mut self, length: usize) -> usize {
        (self.next() % length as u64) as usize
    }
}

/// Collects messages and sends them as packets.
struct FeedBuilder {
    shape: Shape,
    random: Random,
    packets: Vec<Packet>,
    epoch: u32,
    next: u64,   // sequence number
    offset: u64, // in the stream
    now_ns: i64,
    payload: Vec<u8>,
    count: u16,
}

/// Returns the packets of a feed, in order and without loss.
pub fn packets(shape: &Shape) -> Vec<Packet> {
    let mut maker = FeedBuilder {
        shape: shape.clone(),
        random: Random(shape.seed),
        packets: Vec::new(),
        epoch: 0,
        next: 1,
        offset: 0,
        now_ns: shape.begin_ns,
        payload: Vec::new(),
        count: 0,
    };
    let in_epoch = (shape.messages / shape.epochs.max(1) as usize).max(20);
    for epoch in 0..shape.epochs {
        if epoch > 0 {
            maker.restart(epoch);
        }
        maker.epoch(in_epoch);
    }
    maker.packets
}

impl FeedBuilder {
    fn restart(&mut self, epoch: u32) {
        self.now_ns += 90_000_000_000;
        (self.epoch, self.next, self.offset) = (epoch, 1, 0);
        for _ in 0..17 {
            self.now_ns += 1_000_000_000;
            self.send();
        }
    }

    fn epoch(&mut self, messages: usize) {
        let symbols = (messages * 24 / 100).max(1) as u64;
        for event in *b"OS" {
            self.message(b'S', event, &[]);
        }
        for symbol in 0..symbols {
            let name = name(symbol);
            let reason = *b"    ";
            self.message(b'H', b'T', &[&name, &reason]);
            self.message(b'O', b'N', &[&name]);
            self.message(b'P', 0, &[&name, b" "]);
        }
        self.rare(symbols);
        self.send();
        let rest = messages.saturating_sub(symbols as usize * 3 + 10);
        let mut done = 0;
        while done < rest {
            let here = match self.random.below(100) {
                0..2 => 2 + self.random.below(8),
                _ => 1,
            };
            for _ in 0..here {
                self.trading(symbols);
            }
            done += here as usize;
            self.send();
            if self.random.below(14) == 0 {
                self.send(); // a heartbeat
            }
        }
        self.message(b'S', b'C', &[]);
        self.send();
    }

    /// Writes one message of each kind that the rest of the feed lacks.
    fn rare(&mut self, symbols: u64) {
        let name = name(self.random.below(symbols));
        let price = self.price();
        let prices = [price; 6].map(i64::to_le_bytes);
        self.message(b'D', 0x20, &[&name, &100_u32.to_le_bytes(), &prices[0], &[1]]);
        self.message(b'I', b'A', &[&name]);
        self.message(b'X', b'Q', &[&name, &prices[0]]);
        let (paired, imbalance, time) = (700_u32, 50_u32, 1_493_150_400_u32);
        let (paired, imbalance, time) = (paired.to_le_bytes(), imbalance.to_le_bytes(), time.to_le_bytes());
        let fields: [&[u8]; 11] = [
            &name, &paired, &prices[0], &prices[1], &imbalance, b"B\x02", &time, &prices[2], &prices[3],
            &prices[4], &prices[5],
        ];
        self.message(b'A', b'C', &fields);
        if self.shape.feed == Feed::Deep {
            self.message(b'E', b'O', &[&name]);
        }
    }

    fn trading(&mut self, symbols: u64) {
        self.now_ns += self.random.below(2_000_000) as i64;
        let name = name(self.random.below(symbols));
        let (price, other) = (self.price(), self.price());
        let size = (1 + self.random.below(50) as u32) * 100;
        let (price, size) = (price.to_le_bytes(), size.to_le_bytes());
        match self.random.below(1000) {
            0 => self.message(b'B', 0, &[&name, &size, &price, &self.next.to_le_bytes()]),
            1..770 => {
                let conditions = [0, 0x80, 0x10, 0x20, 0x90][self.random.below(5) as usize];
                self.message(b'T', conditions, &[&name, &size, &price, &self.next.to_le_bytes()]);
            }
            _ if self.shape.feed == Feed::Tops => {
                let fields: [&[u8]; 5] = [&name, &size, &price, &other.to_le_bytes(), &size];
                self.message(b'Q', 0, &fields);
            }
            of => self.message(if of < 880 { b'8' } else { b'5' }, 1, &[&name, &size, &price]),
        }
    }

    /// Returns a price in 1/10,000 dollars.
    fn price(&mut self) -> i64 {
        (1 + self.random.below(100_000) as i64) * 100
    }

    /// Adds a message; sends the packet first if the message does not fit.
    fn message(&mut self, kind: u8, code: u8, fields: &[&[u8]]) {
        let length = 10 + fields.iter().map(|field| field.len()).sum::<usize>();
        if self.payload.len() + 2 + length > PAYLOAD_BYTES_MAX {
            self.send();
        }
        self.now_ns += 1 + self.random.below(2_000) as i64;
        // Some messages are stamped long before they are sent.
        let before = if self.random.below(20) == 0 { self.random.below(500_000_000) as i64 } else { 0 };
        self.payload.extend((length as u16).to_le_bytes());
        self.payload.extend([kind, code]);
        self.payload.extend((self.now_ns - before).to_le_bytes());
        for field in fields {
            self.payload.extend(*field);
        }
        self.count += 1;
    }

    /// Sends the collected messages; without any, a heartbeat.
    fn send(&mut self) {
        self.now_ns += 1 + self.random.below(500) as i64;
        let sent_ns = self.now_ns;
        let mut segment = vec![1, 0];
        segment.extend(self.shape.feed.protocol().to_le_bytes());
        segment.extend(self.shape.channel.to_le_bytes());
        segment.extend(self.shape.session.to_le_bytes());
        segment.extend((self.payload.len() as u16).to_le_bytes());
        segment.extend(self.count.to_le_bytes());
        segment.extend(self.offset.to_le_bytes());
        segment.extend(self.next.to_le_bytes());
        segment.extend(sent_ns.to_le_bytes());
        segment.append(&mut self.payload);
        self.offset += (segment.len() - HEADER_BYTES) as u64;
        let wall_ns = (sent_ns + 400_000 + self.random.below(50_000) as i64) / 1000 * 1000;
        let count = std::mem::take(&mut self.count);
        self.packets.push(Packet { wall_ns, epoch: self.epoch, first: self.next, count, segment });
        self.next += u64::from(count);
    }
}

/// Returns a symbol as the feed writes it: up to five letters, padded with spaces.
fn name(symbol: u64) -> [u8; 8] {
    let mut name = *b"        ";
    let mut rest = symbol + 26;
    for place in name.iter_mut().take(5) {
        *place = b'A' + (rest % 26) as u8;
        rest /= 26;
        if rest == 0 {
            break;
        }
    }
    name
}

/// The headers around a segment in a capture.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wrapping {
    /// Tags of IEEE 802.1Q: 0, 1 or 2.
    pub vlan_tags: u8,
    pub ipv6: bool,
    /// 4-byte words of options in the IPv4 header, up to 10.
    pub option_words: u8,
}

/// The kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// pcap, in microseconds.
    Pcap,
    /// pcap, in nanoseconds.
    PcapNanoseconds,
    /// pcap of a big-endian machine.
    PcapBigEndian,
    /// pcapng with an interface in microseconds.
    Pcapng,
    /// pcapng of a big-endian machine, with two interfaces: one in nanoseconds, one in units of
    /// 2^-20 seconds that has no packets.
    PcapngBigEndian,
}

impl File {
    pub const ALL: [Self; 5] =
        [Self::Pcap, Self::PcapNanoseconds, Self::PcapBigEndian, Self::Pcapng, Self::PcapngBigEndian];

    fn is_big_endian(self) -> bool {
        matches!(self, Self::PcapBigEndian | Self::PcapngBigEndian)
    }

    fn u16(self, value: u16) -> [u8; 2] {
        if self.is_big_endian() { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.is_big_endian() { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// Returns the bytes before the first packet.
    pub fn begin(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Pcap | Self::PcapNanoseconds | Self::PcapBigEndian => {
                let magic = if self == Self::PcapNanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
                bytes.extend(self.u32(magic));
                bytes.extend([self.u16(2), self.u16(4)].concat());
                for value in [0, 0, 65_535, 1] {
                    bytes.extend(self.u32(value));
                }
            }
            Self::Pcapng | Self::PcapngBigEndian => {
                let mut body = self.u32(0x1A2B_3C4D).to_vec();
                body.extend([self.u16(1), self.u16(0)].concat());
                body.extend([0xFF; 8]);
                self.block(&mut bytes, 0x0A0D_0D0A, &body);
                let resolutions: &[Option<u8>] =
                    if self == Self::Pcapng { &[None] } else { &[Some(9), Some(0x80 + 20)] };
                for resolution in resolutions {
                    let mut body = [self.u16(1), self.u16(0)].concat();
                    body.extend(self.u32(65_535));
                    if let Some(resolution) = resolution {
                        body.extend([self.u16(9), self.u16(1)].concat());
                        body.extend([*resolution, 0, 0, 0]);
                        body.extend([0; 4]);
                    }
                    self.block(&mut bytes, 1, &body);
                }
            }
        }
        bytes
    }

    /// Appends one packet of the link layer.
    pub fn packet(self, bytes: &mut Vec<u8>, wall_ns: i64, link: &[u8]) {
        let length = self.u32(link.len() as u32);
        match self {
            Self::Pcap | Self::PcapNanoseconds | Self::PcapBigEndian => {
                let unit = if self == Self::PcapNanoseconds { 1 } else { 1000 };
                bytes.extend(self.u32((wall_ns / 1_000_000_000) as u32));
                bytes.extend(self.u32((wall_ns % 1_000_000_000 / unit) as u32));
                bytes.extend([length, length].concat());
                bytes.extend(link);
            }
            Self::Pcapng | Self::PcapngBigEndian => {
                let time = if self == Self::Pcapng { wall_ns / 1000 } else { wall_ns } as u64;
                let mut body = self.u32(0).to_vec();
                body.extend([self.u32((time >> 32) as u32), self.u32(time as u32)].concat());
                body.extend([length, length].concat());
                body.extend(link);
                body.resize(body.len().next_multiple_of(4), 0);
                self.block(bytes, 6, &body);
            }
        }
    }

    fn block(self, bytes: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let length = self.u32(body.len() as u32 + 12);
        bytes.extend(self.u32(kind));
        bytes.extend(length);
        bytes.extend(body);
        bytes.extend(length);
    }
}

/// Wraps a segment in Ethernet, tags, IP and UDP. UDP checksums are zero over IPv4 and wrong over
/// IPv6, as in captures taken on the sender.
pub fn wrap(segment: &[u8], wrapping: Wrapping) -> Vec<u8> {
    let mut link = vec![0x01, 0x00, 0x5E, 0x02, 0x03, 0x0A, 0x00, 0x1E, 0x67, 0x9F, 0xC8, 0xEF];
    for tag in 0..wrapping.vlan_tags {
        link.extend(if tag + 1 < wrapping.vlan_tags { [0x88, 0xA8] } else { [0x81, 0x00] });
        link.extend([0, 7 + tag]);
    }
    let udp_bytes = (8 + segment.len()) as u16;
    if wrapping.ipv6 {
        link.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
        link.extend(udp_bytes.to_be_bytes());
        link.extend([17, 64]);
        link.extend([[0xFD; 16], [0xFF; 16]].concat());
    } else {
        let header_bytes = 20 + 4 * u16::from(wrapping.option_words);
        link.extend([0x08, 0x00, 0x45 + wrapping.option_words, 0]);
        link.extend((header_bytes + udp_bytes).to_be_bytes());
        link.extend([0, 0, 0x40, 0, 1, 17, 0, 0, 10, 1, 2, 3, 224, 2, 3, 10]);
        link.extend(vec![1; 4 * usize::from(wrapping.option_words)]);
    }
    link.extend([0x41, 0x08, 0x41, 0x08]);
    link.extend(udp_bytes.to_be_bytes());
    link.extend(if wrapping.ipv6 { [0x12, 0x34] } else { [0, 0] });
    link.extend(segment);
    link
}

/// Returns a capture of these packets.
pub fn capture<'p>(packets: impl IntoIterator<Item = &'p Packet>, file: File, wrapping: Wrapping) -> Vec<u8> {
    let mut bytes = file.begin();
    for packet in packets {
        file.packet(&mut bytes, packet.wall_ns, &wrap(&packet.segment, wrapping));
    }
    bytes
}

/// Drops each packet with a chance of one in `odds`, but never the first or the last of an epoch.
pub fn lose(packets: &[Packet], seed: u64, odds: u64) -> Vec<Packet> {
    let mut random = Random(seed);
    let is_last = |at: usize| packets.get(at + 1).is_none_or(|next| next.epoch != packets[at].epoch);
    let kept = |(at, packet): &(usize, &Packet)| packet.first == 1 || is_last(*at) || random.below(odds) != 0;
    packets.iter().enumerate().filter(kept).map(|(_, packet)| packet.clone()).collect()
}
