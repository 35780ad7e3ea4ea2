import {
  isLiveSetting,
  MASTER_SETTING_NAMES,
  type MasterSettingName,
  masterSettings,
} from "./master-settings.ts";
import { flagOf, isToggle, variableOf } from "./read-settings.ts";

/** The default as text, empty for none. */
function defaultText(name: MasterSettingName): string {
  const value: unknown = masterSettings.shape[name].parse(undefined);
  return typeof value === "object" ? "" : String(value);
}

function helpOf(name: MasterSettingName): string {
  return masterSettings.shape[name].description ?? "";
}

/** What `heddle-master --help` prints. */
export function masterUsage(): string {
  const flags = MASTER_SETTING_NAMES.map((name) => {
    const usual = isToggle(name) ? "" : defaultText(name);
    return usageLine(flagOf(name), helpOf(name), `${variableOf(name)}${usual && `, ${usual}`}`);
  });
  const config = usageLine("config", "YAML or JSON file of these settings", "HEDDLE_CONFIG");
  return `Usage: heddle-master [flags]\n${[config, ...flags].join("\n")}\n`;
}

function usageLine(flag: string, help: string, given: string): string {
  return `  --${flag.padEnd(20)} ${help} [${given}]`;
}

/** A configuration file of all settings with their defaults, each commented out. */
export function exampleFile(): string {
  const lines = MASTER_SETTING_NAMES.map((name) => {
    const value: unknown = masterSettings.shape[name].parse(undefined);
    const shown = value instanceof Map ? "{}" : JSON.stringify(value);
    const live = isLiveSetting(name) ? " (live)" : "";
    return `# ${helpOf(name)}${live}\n#${name}: ${shown}\n`;
  });
  return `# Settings of a master: heddle-master --config FILE\n# Check: heddle config validate FILE\n# SIGHUP applies what is (live); the rest needs a restart.\n\n${lines.join("\n")}`;
}
