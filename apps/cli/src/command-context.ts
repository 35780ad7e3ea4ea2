import type { Heddle } from "@heddle/client/heddle";
import type { Command } from "commander";
import { type Connection, clientOf, findConnection } from "./connection.ts";
import { trustAuthority } from "./http/trusted-authority.ts";
import type { RowFormat } from "./output/rows.ts";
import { type Terminal, terminal } from "./output/terminal.ts";

/** What every command that calls a cluster needs. */
export interface CommandContext {
  readonly connection: Connection;
  readonly heddle: Heddle;
  readonly format: RowFormat;
  /** Standard output: data. */
  readonly data: Terminal;
  /** Standard error: messages. */
  readonly messages: Terminal;
}

export function commandContext(command: Command): CommandContext {
  const flags = command.optsWithGlobals() as {
    endpoint?: string;
    apiKey?: string;
    ca?: string;
    output: RowFormat;
  };
  const connection = findConnection(flags);
  const { ca, endpointSource } = connection;
  // One that is given is trusted already, and goes before.
  if (ca !== undefined && !flags.ca && !process.env["HEDDLE_CA"])
    trustAuthority(ca, endpointSource);
  return {
    connection,
    heddle: clientOf(connection),
    format: flags.output,
    data: terminal(process.stdout),
    messages: terminal(process.stderr),
  };
}
