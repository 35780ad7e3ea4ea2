import { AppError, ERROR_TABLE } from "@heddle/base/errors";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { printRow } from "../output/rows.ts";

interface Health {
  readonly status: string;
  readonly version: string;
  readonly uptime: number;
  /** Why it is not well, where it says so. */
  readonly detail?: string;
}

/** `heddle health`: exit code 0 only when the cluster says that it is well. */
export async function health(command: Command): Promise<number> {
  const { client, data, format } = commandContext(command);
  const body = (await client.json("/health")) as Partial<Health> | undefined;
  if (typeof body?.status !== "string") {
    throw new AppError("unavailable", `${client.endpoint}/health is not Heddle's.`);
  }
  printRow(
    body,
    [
      { header: "STATUS", value: ({ status }) => status ?? "" },
      { header: "VERSION", value: ({ version }) => version ?? "" },
      { header: "UPTIME", value: ({ uptime }) => `${Math.round(uptime ?? 0)} s` },
      { header: "ENDPOINT", value: () => client.endpoint },
    ],
    format,
    data,
  );
  if (body.detail) process.stderr.write(`${body.detail}\n`);
  return /^(ok|healthy|up|pass)$/i.test(body.status) ? 0 : ERROR_TABLE.unavailable.exit;
}
