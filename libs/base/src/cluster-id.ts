/**
 * The id of a new cluster is its lineage, 32 hexadecimal digits. A restore or a recovery creates
 * another incarnation, `LINEAGE.NUMBER.RANDOM`, with a higher number. So a node that meets the
 * masters of two incarnations knows which one is obsolete.
 */
interface ClusterId {
  readonly lineage: string;
  /** 0 for the first incarnation. */
  readonly incarnation: number;
}

const INCARNATED = /^(.+)\.(\d{1,15})\.[0-9a-f]+$/;

export function parseClusterId(id: string): ClusterId {
  const [, lineage, number] = INCARNATED.exec(id) ?? [];
  if (lineage === undefined) return { lineage: id, incarnation: 0 };
  return { lineage, incarnation: Number(number) };
}

/**
 * The id of the next incarnation. Its number is the time, so of two restores of one backup the
 * later one is higher; `random` distinguishes those of one moment.
 */
export function nextClusterId(before: string, wallMs: number, random: string): string {
  const { lineage, incarnation } = parseClusterId(before);
  return `${lineage}.${Math.max(incarnation + 1, Math.floor(wallMs))}.${random}`;
}

/**
 * Why a node of one cluster must not join another: it is an incarnation that is not later.
 * Undefined if it may, if it follows none, or if the other one is of another lineage.
 */
export function clusterRefusal(followed: string | undefined, other: string): string | undefined {
  if (followed === undefined || followed === other) return undefined;
  const own = parseClusterId(followed);
  const { lineage, incarnation } = parseClusterId(other);
  if (lineage !== own.lineage || incarnation > own.incarnation) return undefined;
  if (incarnation === own.incarnation) {
    return `this node follows ${followed}, and ${other} was restored at the same moment: stop the masters of one of them, or restore again`;
  }
  return `this node follows ${followed}, a later incarnation of the cluster ${other}: stop the masters of the earlier one; if that is the one to keep, restore a backup of it again`;
}
