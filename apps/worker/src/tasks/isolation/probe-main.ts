import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs";

// Runs as a task would, at the worker's start, and lists what it could read or change the mode of,
// though it must not. Arguments: a file that it can write, the process of the worker, and paths
// that are not the task's.

const [result = "", worker = "", ...secrets] = process.argv.slice(2);
const read = [...secrets, `/proc/${worker}/environ`, `/proc/${worker}/maps`].filter((path) =>
  can(() => readFileSync(path)),
);
const changed = secrets.filter((path) => can(() => chmodSync(path, statSync(path).mode)));
writeFileSync(result, JSON.stringify({ read, changed }));

function can(act: () => void): boolean {
  try {
    act();
    return true;
  } catch {
    return false;
  }
}
