import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A call's usage in the master's ledger (a JSON line). */
export interface LedgerRow {
  readonly requestId: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly errorCode?: string;
}

/** Every row of every ledger file under a cluster's data directory. */
export function readLedger(dataDirectory: string): readonly LedgerRow[] {
  return readdirSync(dataDirectory, { recursive: true, encoding: "utf8" })
    .filter((path) => /usage-\d{4}-\d{2}-\d{2}\.jsonl$/.test(path))
    .flatMap((path) => readFileSync(join(dataDirectory, path), "utf8").split("\n"))
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LedgerRow);
}

/** The sum of a metric over all its labels in Prometheus text; undefined where it is absent. */
export function metricSum(text: string, name: string): number | undefined {
  const values = text
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .map((line) => Number(line.slice(line.lastIndexOf(" ") + 1)));
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0);
}

export function tokensOf(rows: readonly LedgerRow[]): { prompt: number; completion: number } {
  return {
    prompt: rows.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
    completion: rows.reduce((sum, { completionTokens }) => sum + completionTokens, 0),
  };
}
