//! Extracts the UDP datagram of a packet.

use etherparse::{
    EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, LinuxSllProtocolType, LinuxSllSlice, TransportSlice,
};

/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;
/// `LINKTYPE_RAW`, and two other values that some systems use with the same meaning. The packet is
/// an IP packet, v4 or v6 according to its version field.
const RAW: [u32; 3] = [101, 12, 14];
/// `LINKTYPE_LINUX_SLL`, whose header replaces the link header if Linux captures on several
/// interfaces.
const LINUX_COOKED: u32 = 113;
/// `LINKTYPE_LINUX_SLL2`, whose header of 20 bytes begins with the `EtherType`.
const LINUX_COOKED_2: u32 = 276;
const LINUX_COOKED_2_BYTES: usize = 20;
/// `LINKTYPE_IPV4` and `LINKTYPE_IPV6`.
const IP: [u32; 2] = [228, 229];

/// The reason why a packet contains no UDP datagram. Reports count packets by reason.
pub type SkipReason = &'static str;

/// Returns the payload of the UDP datagram in a packet with the link type `link`. If the packet is
/// truncated, returns only the captured part of the payload.
///
/// # Errors
/// The packet does not contain a UDP datagram, or contains only a fragment of one.
#[inline]
pub fn datagram(link: u32, packet: &[u8]) -> Result<&[u8], SkipReason> {
    let sliced = match link {
        ETHERNET => {
            LaxSlicedPacket::from_ethernet(packet).map_err(|_| "packets cut within their link header")?
        }
        _ => other_link(link, packet)?,
    };
    if let Some(TransportSlice::Udp(udp)) = &sliced.transport {
        return Ok(udp.payload());
    }
    Err(skip_reason(&sliced))
}

#[cold]
fn other_link(link: u32, packet: &[u8]) -> Result<LaxSlicedPacket<'_>, SkipReason> {
    const CUT: SkipReason = "packets cut within their link header";
    if link == LINUX_COOKED {
        let cooked = LinuxSllSlice::from_slice(packet).map_err(|_| CUT)?;
        let LinuxSllProtocolType::EtherType(kind) = cooked.protocol_type() else {
            return Err("packets that are not IP");
        };
        return Ok(LaxSlicedPacket::from_ether_type(kind, cooked.payload_slice()));
    }
    if link == LINUX_COOKED_2 {
        let body = packet.get(LINUX_COOKED_2_BYTES..).ok_or(CUT)?;
        let [high, low, ..] = *packet else { return Err(CUT) };
        return Ok(LaxSlicedPacket::from_ether_type(EtherType(u16::from(high) << 8 | u16::from(low)), body));
    }
    if RAW.contains(&link) || IP.contains(&link) {
        return LaxSlicedPacket::from_ip(packet).map_err(|_| "packets whose IP header cannot be read");
    }
    Err("packets of links that are not read: neither Ethernet, Linux cooked nor IP")
}

#[cold]
fn skip_reason(sliced: &LaxSlicedPacket<'_>) -> SkipReason {
    let Some(net) = &sliced.net else {
        return if sliced.stop_err.is_some() {
            "packets whose headers cannot be read"
        } else {
            "packets that are not IP"
        };
    };
    let (is_fragment, number) = match net {
        LaxNetSlice::Ipv4(ip) => (ip.payload().fragmented, ip.payload().ip_number),
        LaxNetSlice::Ipv6(ip) => (ip.payload().fragmented, ip.payload().ip_number),
        LaxNetSlice::Arp(_) => return "packets that are not IP",
    };
    match number {
        _ if is_fragment => "fragments of IP packets",
        IpNumber::UDP => "packets whose headers cannot be read",
        _ => "packets that are not UDP",
    }
}
