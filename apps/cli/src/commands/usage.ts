import type { UsageGroup, UsageView } from "@heddle/contracts/api/limits/usage";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { type Column, printRows } from "../output/rows.ts";

const COLUMNS: readonly Column<UsageView>[] = [
  { header: "FROM", value: ({ start_time }) => dateOf(start_time) },
  { header: "KEY", value: ({ api_key_id }) => api_key_id ?? "" },
  { header: "PROJECT", value: ({ project_id }) => project_id ?? "" },
  { header: "MODEL", value: ({ model }) => model ?? "" },
  { header: "REQUESTS", value: (row) => String(row.num_model_requests) },
  { header: "FAILED", value: (row) => String(row.num_failed_requests) },
  { header: "INPUT", value: (row) => String(row.input_tokens) },
  { header: "CACHED", value: (row) => String(row.input_cached_tokens), wide: true },
  { header: "OUTPUT", value: (row) => String(row.output_tokens) },
  { header: "COST", value: ({ cost }) => String(cost) },
];

/** `heddle usage`. */
export async function listUsage(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { by, ...flags } = command.opts<Record<string, string | undefined>>();
  const filter = {
    start: flags["start"],
    end: flags["end"],
    key: flags["key"],
    project: flags["project"],
    model: flags["model"],
    group_by: by?.split(",") as UsageGroup[] | undefined,
  };
  const rows: UsageView[] = [];
  for await (const row of heddle.usage.list(filter)) rows.push(row);
  printRows(rows, COLUMNS, format, data);
  return 0;
}

function dateOf(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().slice(0, 10);
}
