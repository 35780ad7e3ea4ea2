import { AppError, ERROR_TABLE } from "@heddle/base/errors";
import type { MasterHealth } from "@heddle/contracts/api/health";
import type { Command } from "commander";
import { commandContext } from "../command-context.ts";
import { printRow } from "../output/rows.ts";

/** `heddle health`: exit code 0 only if the cluster is healthy. */
export async function health(command: Command): Promise<number> {
  const { heddle, connection, data, format } = commandContext(command);
  const body = (await heddle.cluster.health()) as Partial<MasterHealth> | undefined;
  if (typeof body?.status !== "string") {
    throw new AppError("unavailable", `${connection.endpoint}/health is not a Heddle endpoint.`);
  }
  printRow(
    body,
    [
      { header: "STATUS", value: ({ status }) => status ?? "" },
      { header: "VERSION", value: ({ version }) => version ?? "" },
      { header: "UPTIME", value: ({ uptime }) => `${Math.round(uptime ?? 0)} s` },
      { header: "ENDPOINT", value: () => connection.endpoint },
    ],
    format,
    data,
  );
  if (body.detail) process.stderr.write(`${body.detail}\n`);
  return /^(ok|healthy|up|pass)$/i.test(body.status) ? 0 : ERROR_TABLE.unavailable.exit;
}
