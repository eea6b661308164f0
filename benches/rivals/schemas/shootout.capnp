# A trade report or a price level update of IEX DEEP 1.0, one message a Cap'n Proto message.
@0xd3f0b1a5c7e94621;

enum Side {
  buy @0;
  sell @1;
}

struct Message {
  # Nanoseconds since 1970-01-01 UTC.
  timestamp @0 :Int64;
  sequence @1 :UInt64;
  # Eight bytes of ASCII, filled up with spaces, the first in the lowest bits. Data or Text would be a pointer and a list of
  # its own, another 16 bytes.
  symbol @2 :UInt64;
  # In 1/10000 US dollar.
  price @3 :Int64;
  size @4 :UInt32;
  flags @5 :UInt8;
  union {
    levelUpdate @6 :Side;
    # The trade's identifier.
    trade @7 :Int64;
  }
}
