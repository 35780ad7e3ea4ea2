import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { AppError, ERROR_TABLE } from "@heddle/base/errors";
import type { LogTrust } from "@heddle/event-store/notes/checkpoint";
import { parseVerifierKey } from "@heddle/event-store/notes/note-key";
import { parseNote, type SignedNote } from "@heddle/event-store/notes/signed-note";
import { parseTlogProof } from "@heddle/event-store/notes/tlog-proof";
import { verifyTlogProof } from "@heddle/event-store/notes/verify-tlog-proof";
import { exportLinesOf } from "@heddle/event-store/verify/export-reader";
import type { LogFault } from "@heddle/event-store/verify/faults";
import { verifyDirectory } from "@heddle/event-store/verify/verify-directory";
import { verifyExport } from "@heddle/event-store/verify/verify-export";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type { Command } from "commander";
import { wholeNumberOf } from "../number-flags.ts";
import { printRecord, printRow, type RowFormat } from "../output/rows.ts";
import { terminal } from "../output/terminal.ts";

interface VerifyFlags {
  readonly origin: string;
  readonly key: readonly string[];
  readonly checkpoint?: readonly string[];
  readonly quorum: string;
  readonly entry?: string;
  readonly output: RowFormat;
}

/** What was verified, in the same form for each kind of input. */
interface Verified {
  readonly first: number;
  readonly end: number;
  /** Entries that the last checkpoint signs. */
  readonly signed: number;
  readonly faults: readonly LogFault[];
}

/** A checkpoint or a proof; longer ones are none. */
const MAX_TEXT_BYTES = 2_000_000;

/** `heddle events verify <path>`: exit code 0 only without a fault. */
export async function verifyEvents(command: Command): Promise<number> {
  const flags = command.optsWithGlobals() as VerifyFlags;
  const [path = ""] = command.args;
  const keys = flags.key.map(parseVerifierKey);
  const trust = { origin: flags.origin, keys, quorum: wholeNumberOf("--quorum", flags.quorum) };
  const known: SignedNote[] = [];
  for (const file of flags.checkpoint ?? []) known.push(parseNote(await readSmall(file)));
  const verified = await verifyPath(path, trust, known, flags.entry);
  const out = terminal(process.stdout);
  const isTable = flags.output === "table" || flags.output === "wide";
  if (!isTable) printRecord({ path, ...verified }, path, flags.output, out);
  else {
    printRow(
      verified,
      [
        { header: "FROM", value: ({ first }) => String(first) },
        { header: "TO", value: ({ end }) => String(end - 1) },
        { header: "SIGNED", value: ({ signed }) => String(signed) },
        { header: "FAULTS", value: ({ faults }) => String(faults.length) },
      ],
      flags.output,
      out,
    );
  }
  for (const { kind, message } of verified.faults) process.stderr.write(`${kind}: ${message}\n`);
  return verified.faults.length === 0 ? 0 : ERROR_TABLE.conflict.exit;
}

async function verifyPath(
  path: string,
  trust: LogTrust,
  known: readonly SignedNote[],
  entry: string | undefined,
): Promise<Verified> {
  const found = await stat(path).catch((cause: Error) => {
    throw new AppError("not_found", `${path} cannot be read: ${cause.message}`);
  });
  if (found.isDirectory()) {
    const place = { files: nodeStorageFiles, directory: path };
    const { first, size, signed, faults } = await verifyDirectory(place, trust, known);
    return { first, end: size, signed, faults };
  }
  if (entry !== undefined) return verifyProof(path, entry, trust);
  if (path.endsWith(".tlog-proof")) {
    const message = `${path} proves an entry. Give the entry's bytes with --entry FILE`;
    throw new AppError("missing_required_parameter", message);
  }
  const lines = exportLinesOf(createReadStream(path));
  const { first, end, size, faults } = await verifyExport(lines, trust, known);
  return { first, end, signed: size, faults };
}

async function verifyProof(path: string, entry: string, trust: LogTrust): Promise<Verified> {
  const proof = parseTlogProof((await readSmall(path)).toString());
  const { size } = verifyTlogProof(proof, await readSmall(entry), trust);
  return { first: proof.index, end: proof.index + 1, signed: size, faults: [] };
}

async function readSmall(file: string): Promise<Buffer> {
  const found = await stat(file).catch((cause: Error) => {
    throw new AppError("not_found", `${file} cannot be read: ${cause.message}`);
  });
  if (found.isFile() && found.size <= MAX_TEXT_BYTES) return readFile(file);
  const message = `${file} is no file of at most ${MAX_TEXT_BYTES} bytes. Give a checkpoint, proof or entry`;
  throw new AppError("invalid_value", message);
}
