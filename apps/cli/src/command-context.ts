import type { Command } from "commander";
import { type Connection, findConnection } from "./connection.ts";
import { ApiClient } from "./http/api-client.ts";
import type { OutputFormat } from "./output/rows.ts";
import { type Terminal, terminal } from "./output/terminal.ts";

/** What every command that talks to a cluster works with. */
export interface CommandContext {
  readonly connection: Connection;
  readonly client: ApiClient;
  readonly format: OutputFormat;
  /** Standard output: data. */
  readonly data: Terminal;
  /** Standard error: messages. */
  readonly messages: Terminal;
}

export function commandContext(command: Command): CommandContext {
  const flags = command.optsWithGlobals() as {
    endpoint?: string;
    apiKey?: string;
    output: OutputFormat;
  };
  const connection = findConnection(flags);
  return {
    connection,
    client: new ApiClient(connection),
    format: flags.output,
    data: terminal(process.stdout),
    messages: terminal(process.stderr),
  };
}
