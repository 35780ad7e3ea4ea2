import type { SupervisedTraining } from "@heddle/contracts/training";
import type { Rows } from "@heddle/training/weave/batches";
import { readCsv } from "./csv-file.ts";
import { configFault, cut, fault, listed, quoted, type TrainingData } from "./data-files.ts";
import { readNpy, type Table } from "./npy-file.ts";

/** A table divided into features and targets. */
export interface SupervisedData {
  readonly rows: Rows;
  readonly features: number;
  /** Numbers to predict, or classes. */
  readonly outputs: number;
}

/** Throws an AppError `invalid_value` that names the file, and row and column of a bad cell. */
export function readTable({ files }: TrainingData): Table {
  const tables = files.map(({ path, bytes }) =>
    path.endsWith(".npy") ? readNpy(path, bytes) : readCsv(path, bytes),
  );
  const [first] = tables;
  if (!first) throw new Error("there is no data");
  for (const { path, columns, names } of tables) {
    if (columns !== first.columns || names?.join() !== first.names?.join()) {
      throw fault(path, `has other columns than ${first.path}`);
    }
  }
  const values = new Float32Array(tables.reduce((sum, table) => sum + table.values.length, 0));
  let at = 0;
  for (const table of tables) {
    values.set(table.values, at);
    at += table.values.length;
  }
  return { ...first, values };
}

/** Throws an AppError `invalid_value` where targets are missing, or are no classes. */
export function splitTable(table: Table, config: SupervisedTraining): SupervisedData {
  const { columns, values } = table;
  if (table.names) checkNames(table.path, table.names);
  const targets = targetColumns(table, config);
  const seen = Array.from({ length: columns }, (_, i) => i).filter((i) => !targets.includes(i));
  if (seen.length === 0) throw fault(table.path, "has no column that is not predicted");
  const count = values.length / columns;
  if (count === 0) throw fault(table.path, "has no rows");
  const features = pickColumns(values, columns, seen);
  const wanted = pickColumns(values, columns, targets);
  if (config.program === "regression") {
    return {
      rows: { features, target: wanted, count },
      features: seen.length,
      outputs: targets.length,
    };
  }
  const classes = classesOf(table, targets[0] ?? 0, wanted, config.classes);
  return {
    rows: { features, target: Int32Array.from(wanted), count },
    features: seen.length,
    outputs: Math.max(2, classes),
  };
}

/** The bound of `config.classes`. */
const MAX_CLASSES = 1_048_576;

/** The number of classes: as configured, or one more than the greatest. */
function classesOf(
  { path, names }: Table,
  column: number,
  wanted: Float32Array,
  configured: number | undefined,
): number {
  const most = configured ?? MAX_CLASSES;
  const bad = wanted.findIndex((each) => !Number.isInteger(each) || each < 0 || each >= most);
  if (bad < 0)
    return configured ?? wanted.reduce((greatest, each) => Math.max(greatest, each), 0) + 1;
  const name = names ? ` (${cut(names[column] ?? "")})` : "";
  const where = `the class of row ${bad + 1}, column ${column + 1}${name}`;
  const allowed = `classes are whole numbers from 0 to ${most - 1}`;
  const why = configured === undefined ? "" : ", by config.classes";
  throw fault(path, `has ${wanted[bad]} as ${where}: ${allowed}${why}`);
}

/** Two columns of one name are ambiguous, both as a target and for users of the model. */
function checkNames(path: string, names: readonly string[]): void {
  const first = new Map<string, number>();
  for (const [column, name] of names.entries()) {
    const before = first.get(name);
    if (before !== undefined) {
      const which = `has two columns of the name ${quoted(name)}, columns ${before + 1} and ${column + 1}`;
      throw fault(path, `${which}: give each column a name of its own`);
    }
    first.set(name, column);
  }
}

function targetColumns({ path, names, columns }: Table, config: SupervisedTraining): number[] {
  const wanted = config.target === undefined ? undefined : [config.target].flat();
  if (wanted === undefined) {
    const count = config.program === "regression" ? (config.outputs ?? 1) : 1;
    if (count > columns) {
      const why = `has ${columns} columns, and config.outputs asks for the last ${count} of them`;
      throw configFault(path, "config.outputs", `${why}: leave one at least to predict from`);
    }
    return Array.from({ length: count }, (_, i) => columns - count + i);
  }
  const found = wanted.map((name) => names?.indexOf(name) ?? -1);
  const missing = wanted[found.indexOf(-1)];
  if (missing !== undefined) {
    const known = names ? `its columns are ${listed(names)}` : "npy files have no names";
    throw fault(path, `has no column ${quoted(missing)} to predict: ${known}`);
  }
  if (config.program === "classification" && found.length > 1) {
    throw fault(path, "can be classified by one target column alone");
  }
  if (config.program === "regression" && config.outputs && config.outputs !== found.length) {
    const why = `is to predict the ${found.length} columns of config.target`;
    throw configFault(path, "config.outputs", `${why}, and config.outputs is ${config.outputs}`);
  }
  return found;
}

function pickColumns(values: Float32Array, width: number, columns: readonly number[]) {
  const count = values.length / width;
  const picked = new Float32Array(count * columns.length);
  for (let row = 0; row < count; row++) {
    for (const [to, from] of columns.entries()) {
      picked[row * columns.length + to] = values[row * width + from] ?? 0;
    }
  }
  return picked;
}
