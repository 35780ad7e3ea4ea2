/**
 * The id of a cluster that was formed is its lineage, 32 hexadecimal digits. A restore or a recovery makes
 * another incarnation of it, `LINEAGE.NUMBER.RANDOM`, whose number is higher than that of the one before: so
 * a node that meets the masters of two incarnations knows which of them is over.
 */
interface ClusterId {
  readonly lineage: string;
  /** 0 for the cluster that was formed. */
  readonly incarnation: number;
}

const INCARNATED = /^(.+)\.(\d{1,15})\.[0-9a-f]+$/;

export function parseClusterId(id: string): ClusterId {
  const [, lineage, number] = INCARNATED.exec(id) ?? [];
  if (lineage === undefined) return { lineage: id, incarnation: 0 };
  return { lineage, incarnation: Number(number) };
}

/**
 * The id of the next incarnation. Its number is the time, so that of two that are made from one backup the
 * later is the higher; `random` tells apart those of one moment.
 */
export function nextClusterId(before: string, wallMs: number, random: string): string {
  const { lineage, incarnation } = parseClusterId(before);
  return `${lineage}.${Math.max(incarnation + 1, Math.floor(wallMs))}.${random}`;
}

/**
 * Why a node that follows one cluster must not follow another: an incarnation that is not later. Undefined
 * where it may, as where it follows none, or where the other one is no incarnation of its cluster at all.
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
