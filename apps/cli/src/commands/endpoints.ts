import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { dataDirectory, readCredentials } from "../connection.ts";
import { printRows } from "../output/rows.ts";

/** `heddle endpoints list`: the configured addresses, and which one is used. */
export async function listEndpoints(command: Command): Promise<number> {
  const { connection, data, format } = commandContext(command);
  const file = readCredentials(dataDirectory(undefined));
  const known = [
    { source: "--endpoint", endpoint: command.optsWithGlobals()["endpoint"] as string | undefined },
    { source: "HEDDLE_ENDPOINT", endpoint: process.env["HEDDLE_ENDPOINT"] },
    ...(file?.endpoints ?? []).map((endpoint) => ({ source: "credentials file", endpoint })),
    ...(connection.endpointSource === "default"
      ? [{ source: "default", endpoint: connection.endpoint }]
      : []),
  ];
  const usedIndex = known.findIndex(
    ({ source, endpoint }) => endpoint && source === connection.endpointSource,
  );
  const rows = known.flatMap(({ source, endpoint }, i) =>
    endpoint ? [{ endpoint, source, used: i === usedIndex }] : [],
  );
  printRows(
    rows,
    [
      { header: "ENDPOINT", value: ({ endpoint }) => endpoint },
      { header: "SOURCE", value: ({ source }) => source },
      { header: "USED", value: ({ used }) => (used ? "yes" : "no") },
    ],
    format,
    data,
  );
  return 0;
}
