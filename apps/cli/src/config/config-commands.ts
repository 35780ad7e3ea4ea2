import { isLiveSetting } from "@heddle/contracts/configuration/master-settings";
import {
  checkSettings,
  faultText,
  settingsSchema,
} from "@heddle/contracts/configuration/read-settings";
import { readSettingsFile } from "@heddle/contracts/configuration/settings-file";
import { exampleFile } from "@heddle/contracts/configuration/settings-text";
import type { Command } from "commander";
import { printRecord, type RowFormat } from "../output/rows.ts";
import { terminal } from "../output/terminal.ts";

/** `heddle config validate <file>`: all faults at once, each with its line. */
export async function validateConfig(command: Command): Promise<number> {
  const [path = ""] = command.args;
  const file = readSettingsFile("the configuration", path);
  const { env, output: format } = command.optsWithGlobals<{ env?: boolean; output: RowFormat }>();
  const { faults } = checkSettings({ file, ...(env ? { env: process.env } : {}) });
  const valid = faults.length === 0;
  const names = Object.keys(file.values);
  const live = names.filter(isLiveSetting);
  const needsRestart = names.filter((name) => !isLiveSetting(name));
  if (format === "json" || format === "yaml") {
    const of = valid ? { live, needs_restart: needsRestart } : {};
    printRecord({ file: path, valid, faults, ...of }, path, format, terminal(process.stdout));
  } else if (valid) {
    process.stdout.write(`${path}: valid, ${names.length} settings.\n`);
    if (live.length > 0) process.stdout.write(`SIGHUP applies ${live.join(", ")}.\n`);
    if (needsRestart.length > 0) {
      process.stdout.write(`A restart applies ${needsRestart.join(", ")}.\n`);
    }
  } else {
    for (const fault of faults) process.stderr.write(`${faultText(fault)}.\n`);
  }
  return valid ? 0 : 1;
}

/** `heddle config schema`. */
export async function printConfigSchema(): Promise<number> {
  process.stdout.write(`${JSON.stringify(settingsSchema(), null, 2)}\n`);
  return 0;
}

/** `heddle config example`. */
export async function printConfigExample(): Promise<number> {
  process.stdout.write(exampleFile());
  return 0;
}
