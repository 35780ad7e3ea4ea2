/** How an engine reports the GPUs that it runs on, as `gpu 0: NAME` or `gpus 0,1: NAME`. */
export function deviceLabel(indexes: readonly (number | string)[], name: string): string {
  return `gpu${indexes.length > 1 ? "s" : ""} ${indexes.join(",")}: ${name}`;
}

/** The GPUs of such a label; none of any other. */
export function devicesOfLabel(label: string | undefined): number[] {
  const [, indexes = ""] = /^(?:cuda|gpus?)[ :]?(\d+(?:,\d+)*)/i.exec(label ?? "") ?? [];
  return indexes === "" ? [] : indexes.split(",").map(Number);
}
