import type { Worker as ClusterNode } from "@heddle/contracts/api/workers";
import { STRINGS } from "../strings.ts";
import { figureShare, figureText, type GpuFigure, isUnhealthy } from "./gpu-figure.ts";

const CELL_PX = 22;
const EDGE_PX = 2;
const SIDE_PX = CELL_PX - 2 * EDGE_PX;
/** A device without load is still seen. */
const FAINTEST = 0.08;
/** Shares of a figure that look different. */
const LEVELS = 16;
/** More devices of a node are not drawn; its page lists them all. */
const MAX_CELLS = 64;

interface DeviceCellsOptions {
  readonly node: ClusterNode;
  readonly figure: GpuFigure;
}

/**
 * The GPUs of a node as cells: the fuller, the more of its figure; unhealthy ones are crossed. Cells
 * that look the same are one path: each frame of a scroll draws those of many nodes.
 */
export function DeviceCells({ node, figure }: DeviceCellsOptions) {
  const shown = node.gpus.slice(0, MAX_CELLS);
  const models = [...new Set(shown.map(({ name }) => name))].join(", ");
  const figures = shown.map((gpu) => `${gpu.index}: ${figureText(gpu, figure)}`).join(", ");
  const crosses = shown.map((gpu, at) => (isUnhealthy(node, gpu) ? crossAt(at) : "")).join("");
  return (
    <svg className="cells" width={shown.length * CELL_PX} height={CELL_PX} role="img">
      <title>{`${models}; ${STRINGS.gpus.figures[figure]}: ${figures}`}</title>
      {[...squaresByLevel(shown, figure)].map(([level, squares]) => (
        <path
          key={level}
          className="square"
          d={squares}
          fillOpacity={FAINTEST + ((1 - FAINTEST) * level) / LEVELS}
        />
      ))}
      {crosses !== "" && <path className="cross" d={crosses} />}
    </svg>
  );
}

function squaresByLevel(gpus: ClusterNode["gpus"], figure: GpuFigure): Map<number, string> {
  const levels = new Map<number, string>();
  for (const [at, gpu] of gpus.entries()) {
    const level = Math.round(LEVELS * figureShare(gpu, figure));
    levels.set(level, (levels.get(level) ?? "") + squareAt(at));
  }
  return levels;
}

function squareAt(at: number): string {
  return `M${at * CELL_PX + EDGE_PX} ${EDGE_PX}h${SIDE_PX}v${SIDE_PX}h-${SIDE_PX}z`;
}

function crossAt(at: number): string {
  const arm = SIDE_PX - 8;
  const left = at * CELL_PX + EDGE_PX + 4;
  return `M${left} ${EDGE_PX + 4}l${arm} ${arm}m0 -${arm}l-${arm} ${arm}`;
}
