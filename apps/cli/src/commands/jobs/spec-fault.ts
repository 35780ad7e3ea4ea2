import { HeddleError } from "@heddle/client/errors";

/** The flag that sets a field, by the field's pointer. */
const FLAGS: Readonly<Record<string, string>> = {
  "#/name": "--name",
  "#/command": "--command",
  "#/container_image": "--image",
  "#/project": "--project",
  "#/queue": "--queue",
  "#/tasks": "--tasks",
  "#/resources/gpu_count": "--gpus",
  "#/resources/cpu_cores": "--cpus",
  "#/resources/memory_gb": "--memory-gb",
  "#/resources/priority": "--priority",
};

/** Throws the refusal of a spec again, with its file and what to change there. */
export function throwSpecFault(thrown: unknown, file: string | undefined): never {
  const isOfField = thrown instanceof HeddleError && thrown.status === 400;
  const [fault] = isOfField ? thrown.errors : [];
  if (!isOfField || !fault) throw thrown;
  const { message, code, status, request_id, errors, cause } = thrown;
  const flag = FLAGS[fault.pointer];
  const isMissing = fault.code === "missing_required_parameter";
  const advice = adviceFor(file, flag, isMissing);
  const where = file === undefined ? "" : `${file === "-" ? "standard input" : file}: `;
  throw new HeddleError(`${where}${message}${advice}`, { code, status, request_id, errors, cause });
}

function adviceFor(file: string | undefined, flag: string | undefined, isMissing: boolean): string {
  const inFile = isMissing ? "Add the field to the file" : "Correct the field in the file";
  if (file === undefined) return flag === undefined ? "" : ` Give another ${flag}.`;
  return flag === undefined ? ` ${inFile}.` : ` ${inFile}, or give ${flag}.`;
}
