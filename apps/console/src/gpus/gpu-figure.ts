import type { Worker as ClusterNode } from "@heddle/contracts/api/workers";
import { formatBytes, formatPercent } from "../ui/format.ts";

type GpuDevice = ClusterNode["gpus"][number];

export const GPU_FIGURES = ["load", "memory", "temperature"] as const;
export type GpuFigure = (typeof GPU_FIGURES)[number];

/** The temperature at which devices slow down. */
const HOT_CELSIUS = 90;
const COOL_CELSIUS = 30;

/** A figure of a device as a share of its range, 0 to 1. */
export function figureShare(gpu: GpuDevice, figure: GpuFigure): number {
  if (figure === "load") return bounded(gpu.utilization_percent / 100);
  if (figure === "memory") return bounded(gpu.memory_used_bytes / Math.max(1, gpu.memory_bytes));
  return bounded((gpu.temperature_celsius - COOL_CELSIUS) / (HOT_CELSIUS - COOL_CELSIUS));
}

/** The figure as text. */
export function figureText(gpu: GpuDevice, figure: GpuFigure): string {
  if (figure === "load") return formatPercent(gpu.utilization_percent);
  if (figure === "memory") return formatBytes(gpu.memory_used_bytes);
  return `${Math.round(gpu.temperature_celsius)} °C`;
}

/** Devices with a fault, or that the scheduler has taken out of service. */
export function isUnhealthy(node: Pick<ClusterNode, "jobs">, gpu: GpuDevice): boolean {
  const quarantined = node.jobs?.quarantined.some(({ device }) => device === gpu.index);
  return gpu.fault !== null || quarantined === true;
}

function bounded(share: number): number {
  return Math.min(1, Math.max(0, share));
}
