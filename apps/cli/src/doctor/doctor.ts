import { AppError } from "@heddle/base/errors";
import type { Command } from "commander";
import { type Connection, dataDirectory, findConnection } from "../connection.ts";
import { isRecordFormat, printRecord, type RowFormat } from "../output/rows.ts";
import { type Terminal, terminal } from "../output/terminal.ts";
import { runningHolder } from "../up/data-directory.ts";
import { LOOPBACK } from "../up/ports.ts";
import { checkCluster } from "./cluster-checks.ts";
import { checkData } from "./data-checks.ts";
import { type Finding, type FindingStatus, Reporter } from "./finding.ts";
import {
  checkMemory,
  checkNode,
  checkOpenFiles,
  checkPorts,
  checkTemporaryFolder,
} from "./machine-checks.ts";
import { checkGpu, checkIsolation } from "./worker-checks.ts";

interface DoctorFlags {
  readonly data?: string;
  readonly port: string;
  readonly masters: string;
  readonly json?: boolean;
  readonly output: RowFormat;
  readonly endpoint?: string;
  readonly apiKey?: string;
}

const MAX_PORT = 65_535;
const STYLES = { ok: "green", warning: "yellow", error: "red", skipped: "dim" } as const;
const STATUS_WIDTH = "warning".length;

/** `heddle doctor`: exit code 1 if a check finds an error. */
export async function doctor(command: Command): Promise<number> {
  const flags = command.optsWithGlobals<DoctorFlags>();
  const masters = whole("--masters", flags.masters, 5);
  const port = whole("--port", flags.port, MAX_PORT + 1 - masters);
  const dataDir = dataDirectory(flags.data);
  const own = runningHolder(dataDir);
  const findings = [
    checkNode(),
    checkMemory(),
    checkOpenFiles(),
    checkTemporaryFolder(),
    ...checkData(dataDir, masters),
    ...(own ? [used(port, own)] : await checkPorts(port, masters)),
    ...(await Promise.all([checkGpu(), checkIsolation()])),
    ...(await cluster(flags, own !== undefined, command.parent?.version() ?? "")),
  ];
  print(findings, flags.json ? "json" : flags.output);
  return findings.some(({ status }) => status === "error") ? 1 : 0;
}

function used(port: number, { pid, address }: { pid: number; address: string }): Finding {
  const report = new Reporter("port", `${LOOPBACK}:${port}`);
  return report.skipped(`a cluster of this data directory runs: process ${pid} at ${address}`);
}

/** Without a named address and a running cluster there is no fault. */
async function cluster(flags: DoctorFlags, runs: boolean, version: string): Promise<Finding[]> {
  const env = flags.data ? { ...process.env, HEDDLE_DATA: flags.data } : process.env;
  let connection: Connection;
  try {
    connection = findConnection(flags, env);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const report = new Reporter("reachable", "cluster");
    return [report.error(error.message, "Correct the address, the key or the file it names.")];
  }
  const isNamed = !["default", "credentials file"].includes(connection.endpointSource);
  if (!runs && !isNamed) {
    const report = new Reporter("reachable", connection.endpoint);
    return [report.skipped("no cluster runs here; heddle up starts one, --endpoint names another")];
  }
  return await checkCluster(connection, version);
}

function whole(flag: string, text: string, most: number): number {
  const value = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (value >= 1 && value <= most) return value;
  const message = `${flag} "${text}": give a whole number from 1 to ${most}.`;
  throw new AppError("invalid_value", message);
}

/** Data are the findings; the summary is a message. */
function print(findings: readonly Finding[], format: RowFormat): void {
  const out = terminal(process.stdout);
  const faults = findings.filter(({ fix }) => fix !== null);
  if (isRecordFormat(format)) printRecord(findings, "", format, out);
  else if (format === "name") out.write(faults.map(({ check }) => `${check}\n`).join(""));
  else for (const finding of findings) printFinding(finding, out);
  const count = (status: FindingStatus) =>
    findings.filter((finding) => finding.status === status).length;
  terminal(process.stderr).write(
    `${findings.length} checks: ${count("error")} errors, ${count("warning")} warnings, ${count("skipped")} skipped\n`,
  );
}

function printFinding({ status, check, where, what, fix }: Finding, out: Terminal): void {
  const word = out.paint(STYLES[status], status.padEnd(STATUS_WIDTH));
  out.write(`${word}  ${check}  ${where}: ${what}\n`);
  if (fix !== null) out.write(`${" ".repeat(STATUS_WIDTH)}  ${out.paint("dim", "fix")} ${fix}\n`);
}
