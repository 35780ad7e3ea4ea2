import { AppError } from "@heddle/base/errors";
import type { LimitedView, LimitSettings } from "@heddle/contracts/api/limits/limits";
import { BUDGET_PERIODS, type BudgetPeriod, type LimitedKind } from "@heddle/contracts/limits";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { amountOf, wholeNumberOf } from "../number-flags.ts";
import { type Column, printRow, printRows } from "../output/rows.ts";

const COLUMNS: readonly Column<LimitedView>[] = [
  { header: "KIND", value: ({ kind }) => kind },
  { header: "NAME", value: ({ name }) => name },
  { header: "PROJECT", value: ({ project }) => project ?? "" },
  { header: "REQUESTS/MIN", value: (row) => textOrNone(row.requests_per_minute) },
  { header: "TOKENS/MIN", value: (row) => textOrNone(row.tokens_per_minute) },
  { header: "CONCURRENCY", value: (row) => textOrNone(row.concurrency) },
  { header: "BUDGET", value: ({ budget }) => (budget ? `${budget.amount}/${budget.period}` : "") },
  { header: "PRICES", value: ({ prices }) => (prices ? `${prices.input}/${prices.output}` : "") },
];

/** `heddle limits list`. */
export async function listLimits(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const rows: LimitedView[] = [];
  for await (const row of heddle.limits.list()) rows.push(row);
  printRows(rows, COLUMNS, format, data);
  return 0;
}

/** `heddle limits get <kind> <name>`. */
export async function getLimits(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const [kind = "", name = ""] = command.args;
  const { project } = command.opts<{ project?: string }>();
  const limited = await heddle.limits.get(kind as LimitedKind, name, { project });
  printRow(limited, COLUMNS, format, data);
  return 0;
}

/** `heddle limits set <kind> <name>`: unset flags remove their limits. */
export async function setLimitsCommand(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const [kind = "", name = ""] = command.args;
  const { project, ...flags } = command.opts<Record<string, string | undefined>>();
  const settings = { ...flagLimits(flags), prices: pricesOf(flags) };
  const limited = await heddle.limits.set(kind as LimitedKind, name, settings, { project });
  printRow(limited, COLUMNS, format, data);
  return 0;
}

/** The flags of `limitFlags`. */
export type LimitFlags = Partial<
  Record<"requestsPerMinute" | "tokensPerMinute" | "concurrency" | "budget", string>
>;

/** The limits that flags give, without prices. */
export function flagLimits({
  requestsPerMinute,
  tokensPerMinute,
  concurrency,
  budget,
}: LimitFlags): Omit<LimitSettings, "prices"> {
  const whole = (flag: string, text: string | undefined) =>
    text === undefined ? undefined : wholeNumberOf(flag, text);
  return {
    requests_per_minute: whole("--requests-per-minute", requestsPerMinute),
    tokens_per_minute: whole("--tokens-per-minute", tokensPerMinute),
    concurrency: whole("--concurrency", concurrency),
    budget: budget === undefined ? undefined : budgetOf(budget),
  };
}

function pricesOf(flags: Record<string, string | undefined>): LimitSettings["prices"] {
  const input = amountOf(flags, "inputPrice");
  const output = amountOf(flags, "outputPrice");
  return input === undefined && output === undefined ? undefined : { input, output };
}

function budgetOf(text: string): { amount: number; period: BudgetPeriod } {
  const [, amount, period] = /^(\d{1,9}(?:\.\d{1,3})?)\/(\w+)$/.exec(text) ?? [];
  const known = BUDGET_PERIODS.find((each) => each === period);
  if (amount !== undefined && known) return { amount: Number(amount), period: known };
  const message = `--budget "${text}": give an amount and a period, for example 100/month (${BUDGET_PERIODS.join(", ")}).`;
  throw new AppError("invalid_value", message);
}

function textOrNone(value: number | null): string {
  return value === null ? "" : String(value);
}
