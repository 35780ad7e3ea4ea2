import { Heddle } from "@heddle/client/heddle";
import type { Command } from "commander";
import { type Connection, findConnection } from "./connection.ts";
import { ApiClient } from "./http/api-client.ts";
import type { RowFormat } from "./output/rows.ts";
import { type Terminal, terminal } from "./output/terminal.ts";

/** What every command that talks to a cluster works with. */
export interface CommandContext {
  readonly connection: Connection;
  /** For answers and streams of the inference API, and what only operators do. */
  readonly client: ApiClient;
  /** For jobs, workers and queues. */
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
    output: RowFormat;
  };
  const connection = findConnection(flags);
  const { endpoint, others = [], apiKey } = connection;
  return {
    connection,
    client: new ApiClient(connection),
    heddle: new Heddle({ endpoint: [endpoint, ...others], auth_token: apiKey }),
    format: flags.output,
    data: terminal(process.stdout),
    messages: terminal(process.stderr),
  };
}
