//! `import lobster`.

use std::io::Write;

use jiff::civil::Date;

use super::{Common, import};
use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::import::lobster;

/// LOBSTER: message and order-book files, plain or in ZIPs.
///
/// Files of one symbol and day, as their names say, are a pair: row k of the order book has the time of row k of the messages. What a file
/// holds is told by its rows. Sources are SYMBOL-message and SYMBOL-orderbook; each pair is a run, and sample k of a source is row k.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Symbol, instead of what the names of the files say.
    #[arg(long)]
    symbol: Option<String>,
    /// Day on the exchange's calendar (2012-06-21), instead of what the names say; where nothing says it, times count from 1970-01-01 UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<Date>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let options = lobster::Options { symbol: args.symbol.clone(), date: args.date };
    import(&args.common, |files, job| lobster::import(files, &options, job), out)
}
