import { resolve } from "node:path";
import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { nearestField } from "../nearest-field.ts";
import { crossFaults, type SettingFault } from "./master-faults.ts";
import {
  MASTER_SETTING_NAMES,
  type MasterSettingName,
  type MasterSettings,
  masterSettings,
} from "./master-settings.ts";

/** A configuration file: its settings, and the line of each. */
export interface SettingsFile {
  readonly path: string;
  /** Relative paths of its settings begin here. */
  readonly folder: string;
  readonly values: Readonly<Record<string, unknown>>;
  readonly lines: Readonly<Record<string, number>>;
}

/** Where settings come from: an earlier one takes precedence. */
export interface SettingSources {
  readonly flags?: Readonly<Record<string, string | boolean | undefined>> | undefined;
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  readonly file?: SettingsFile | undefined;
}

export function flagOf(name: string): string {
  return name.replaceAll("_", "-");
}

export function variableOf(name: string): string {
  return `HEDDLE_${name.toUpperCase()}`;
}

/** Whether its flag takes no value. */
export function isToggle(name: MasterSettingName): boolean {
  return schemaOf(name).type === "boolean";
}

interface FieldSchema {
  readonly type?: string;
  readonly format?: string;
}

let fields: Readonly<Record<string, FieldSchema>> | undefined;
function schemaOf(name: MasterSettingName): FieldSchema {
  fields ??= settingsSchema().properties as Readonly<Record<string, FieldSchema>>;
  return fields[name] ?? {};
}

/** The JSON Schema of the configuration file. */
export function settingsSchema() {
  return z.toJSONSchema(masterSettings, { io: "input", unrepresentable: "any" });
}

/** All settings, or one `invalid_value` that lists every fault. */
export function readSettings(sources: SettingSources): MasterSettings {
  const { settings, faults } = checkSettings(sources);
  if (settings && faults.length === 0) return settings;
  throw new AppError("invalid_value", `${faults.map(faultText).join("; ")}.`);
}

export function faultText({ place, message }: SettingFault): string {
  return `${place} ${message}`;
}

/** The settings unless some are malformed, and all faults. */
export function checkSettings(sources: SettingSources): {
  readonly settings?: MasterSettings;
  readonly faults: readonly SettingFault[];
} {
  const given = MASTER_SETTING_NAMES.map((name) => ({ name, ...givenOf(name, sources) }));
  const places = Object.fromEntries(given.map(({ name, place }) => [name, place]));
  const at = (name: string) => places[name] ?? `--${flagOf(name)}`;
  const values = Object.fromEntries(given.map(({ name, value }) => [name, value]));
  const { data, error } = masterSettings.safeParse(values);
  const unknown = unknownFaults(sources.file);
  if (!data) {
    const faults = error.issues.map((issue) => faultOf(issue, values, at));
    return { faults: [...unknown, ...faults] };
  }
  const crossed = crossFaults(data, at);
  return { settings: data, faults: [...unknown, ...crossed] };
}

function givenOf(name: MasterSettingName, { flags = {}, env = {}, file }: SettingSources) {
  const flag = flags[flagOf(name)];
  if (flag !== undefined) return { value: ofText(name, flag), place: `--${flagOf(name)}` };
  const variable = env[variableOf(name)];
  if (variable) return { value: ofText(name, variable), place: variableOf(name) };
  if (!file || !Object.hasOwn(file.values, name)) return {};
  const place = `${file.path}:${file.lines[name]}: ${name}`;
  return { value: ofFile(name, file.values[name], file.folder), place };
}

/** A text of the command line or the environment, as the type of its setting. */
function ofText(name: MasterSettingName, given: string | boolean): unknown {
  if (typeof given === "boolean") return given;
  const { type } = schemaOf(name);
  if (type === "integer" && /^\d{1,12}$/.test(given)) return Number(given);
  if (type === "boolean")
    return given === "true" || (given === "false" || given === "" ? false : given);
  return given;
}

/** A path is relative to the file. */
function ofFile(name: MasterSettingName, value: unknown, folder: string): unknown {
  // An empty value of YAML is a setting that is not given.
  if (value === null) return undefined;
  const isPath = (item: unknown): item is string =>
    typeof item === "string" && /^\.{1,2}\//.test(item);
  if (name === "plugins" && Array.isArray(value)) {
    return value.map((item: unknown) => (isPath(item) ? resolve(folder, item) : item));
  }
  if (schemaOf(name).format !== "path" || typeof value !== "string" || value === "") return value;
  return value.startsWith("~") ? value : resolve(folder, value);
}

function unknownFaults(file: SettingsFile | undefined): SettingFault[] {
  if (!file) return [];
  const unknown = Object.keys(file.values).filter(
    (name) => !(MASTER_SETTING_NAMES as readonly string[]).includes(name),
  );
  return unknown.map((name) => {
    const meant = nearestField(masterSettings, [], name.replaceAll("-", "_"));
    const same = MASTER_SETTING_NAMES.find((each) => each === name.replaceAll("-", "_"));
    const advice = (same ?? meant) ? `; the nearest is ${same ?? meant}` : "";
    const place = `${file.path}:${file.lines[name]}: ${name}`;
    return { setting: name, place, message: `is no setting${advice}` };
  });
}

function faultOf(
  { path, message, code }: z.core.$ZodIssue,
  values: Readonly<Record<string, unknown>>,
  at: (name: string) => string,
): SettingFault {
  const name = String(path[0]);
  const got = code === "custom" || message.includes("got ") ? "" : `, got ${shown(values[name])}`;
  return { setting: name, place: at(name), message: `${message}${got}` };
}

function shown(value: unknown): string {
  return typeof value === "string"
    ? `"${value.slice(0, 200)}"`
    : JSON.stringify(value).slice(0, 200);
}
