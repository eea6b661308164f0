//! `import lobster`.

use std::io::Write;

use crate::lobster;
use flatcap_text::human;
use jiff::civil::Date;

use super::{CommonArguments, ImportCommandError, ImportEnd, import};

/// Import LOBSTER files: messages and order books, plain or in ZIP archives.
///
/// Files with the same symbol and day in their names are a pair. Row k of the order book has the
/// time of row k of the messages. The content of a file is detected from its rows. The sources are
/// SYMBOL-message and SYMBOL-orderbook; each pair becomes a run, and sample k of a source is row k.
#[derive(Debug, clap::Args)]
pub(super) struct LobsterArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Symbol, instead of the one in the file names.
    #[arg(long)]
    symbol: Option<String>,
    /// Day on the exchange's calendar (2012-06-21), instead of the one in the file names. Without
    /// either, times start at 1970-01-01 UTC.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = human::parse_date)]
    date: Option<Date>,
}

pub(super) fn run(args: &LobsterArguments, out: &mut dyn Write) -> Result<ImportEnd, ImportCommandError> {
    let options = lobster::LobsterOptions { symbol: args.symbol.clone(), date: args.date };
    import(&args.common, |files, job| lobster::import(files, &options, job), out)
}
