import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";

/** A node of an openb node list. */
export interface TraceNode {
  readonly name: string;
  readonly cpuMilli: number;
  readonly memoryMib: number;
  readonly gpus: number;
  /** The GPU's model; empty for a node without. */
  readonly model: string;
}

/** A pod of an openb pod list. Pods that ask for the same share one `kind`. */
export interface TracePod {
  readonly kind: number;
  readonly cpuMilli: number;
  readonly memoryMib: number;
  readonly gpus: number;
  /** Thousandths per device; 0 where `gpus` is 0. */
  readonly gpuMilli: number;
  /** Accepted models; empty accepts any. */
  readonly models: readonly string[];
}

/** A pod list under its file's base name. */
export interface Trace {
  readonly name: string;
  readonly pods: readonly TracePod[];
}

/** Reads the GPU node list and every pod list of a folder, in the order of their names. */
export function readTraces(dir: string): { nodes: TraceNode[]; traces: Trace[] } {
  const files = readdirSync(dir).sort();
  const nodeList = ["gpu_node.csv", ".csv"]
    .map((end) => files.find((file) => file.startsWith("openb_node_list") && file.endsWith(end)))
    .find((file) => file !== undefined);
  if (!nodeList) throw new Error(`no openb_node_list*.csv in ${dir}: put the node list there`);
  const podLists = files.filter((file) => /^openb_pod_list_.*\.csv$/.test(file));
  if (podLists.length === 0) throw new Error(`no openb_pod_list_*.csv in ${dir}`);
  return {
    nodes: parseNodes(readFileSync(join(dir, nodeList), "utf8"), nodeList),
    traces: podLists.map((file) => ({
      name: basename(file, ".csv"),
      pods: parsePods(readFileSync(join(dir, file), "utf8"), file),
    })),
  };
}

/** Nodes from CSV text with the columns sn, cpu_milli, memory_mib, gpu, model. */
export function parseNodes(csv: string, file: string): TraceNode[] {
  return rows(csv, file, ["sn", "cpu_milli", "memory_mib", "gpu", "model"]).map((row) => ({
    name: row.text("sn"),
    cpuMilli: row.amount("cpu_milli"),
    memoryMib: row.amount("memory_mib"),
    gpus: row.amount("gpu"),
    model: row.text("model"),
  }));
}

/** Pods from CSV text; `gpu_spec` may be missing and every other column is ignored. */
export function parsePods(csv: string, file: string): TracePod[] {
  const kinds = new Map<string, number>();
  const columns = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
  return rows(csv, file, columns).map((row) => {
    const gpus = row.amount("num_gpu");
    const pod = {
      cpuMilli: row.amount("cpu_milli"),
      memoryMib: row.amount("memory_mib"),
      gpus,
      gpuMilli: gpus > 0 ? row.amount("gpu_milli") : 0,
      models: [...new Set(row.text("gpu_spec").split("|").filter(Boolean))],
    };
    const key = JSON.stringify(pod);
    const kind = kinds.get(key) ?? kinds.size;
    kinds.set(key, kind);
    return { kind, ...pod };
  });
}

interface Row {
  text(column: string): string;
  amount(column: string): number;
}

function rows(csv: string, file: string, required: readonly string[]): Row[] {
  const lines = csv.split(/\r?\n/).filter((line) => line.trim() !== "");
  const header = (lines[0] ?? "").split(",").map((cell) => cell.trim());
  const missing = required.filter((column) => !header.includes(column));
  if (missing.length > 0) {
    throw new Error(`${file}: the header lacks ${missing.join(", ")}; it is "${lines[0] ?? ""}"`);
  }
  return lines.slice(1).map((line, index) => {
    const cells = line.split(",");
    const text = (column: string): string => (cells[header.indexOf(column)] ?? "").trim();
    const amount = (column: string): number => {
      const value = Number(text(column));
      if (text(column) !== "" && Number.isFinite(value) && value >= 0) return value;
      const where = `${file}, line ${index + 2}, column ${column}`;
      throw new Error(`${where}: expected a number >= 0, got "${text(column)}"`);
    };
    return { text, amount };
  });
}
