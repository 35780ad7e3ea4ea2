import type { Worker as ClusterNode } from "@heddle/contracts/api/workers";
import { STRINGS } from "../strings.ts";
import { figureShare, figureText, type GpuFigure, isUnhealthy } from "./gpu-figure.ts";

const CELL_PX = 22;
const SIDE_PX = 18;
/** A device without load is still seen. */
const FAINTEST = 0.08;
/** More devices of a node are not drawn; its page lists them all. */
const MAX_CELLS = 64;

interface DeviceCellsOptions {
  readonly node: ClusterNode;
  readonly figure: GpuFigure;
}

/** The GPUs of a node as cells: the fuller, the more of its figure; unhealthy ones are crossed. */
export function DeviceCells({ node, figure }: DeviceCellsOptions) {
  const shown = node.gpus.slice(0, MAX_CELLS);
  const label = shown.map((gpu) => `${gpu.index}: ${figureText(gpu, figure)}`).join(", ");
  return (
    <svg
      className="cells"
      width={shown.length * CELL_PX}
      height={CELL_PX}
      role="img"
      aria-label={`${STRINGS.gpus.figures[figure]}: ${label}`}
    >
      {shown.map((gpu, at) => (
        <g key={gpu.index} transform={`translate(${at * CELL_PX + 2} 2)`}>
          <title>{`${gpu.index} ${gpu.name}: ${figureText(gpu, figure)}`}</title>
          <rect
            width={SIDE_PX}
            height={SIDE_PX}
            rx={3}
            fillOpacity={FAINTEST + (1 - FAINTEST) * figureShare(gpu, figure)}
          />
          {isUnhealthy(node, gpu) && (
            <path d={`M4 4L${SIDE_PX - 4} ${SIDE_PX - 4}M${SIDE_PX - 4} 4L4 ${SIDE_PX - 4}`} />
          )}
        </g>
      ))}
    </svg>
  );
}
