/** The parts of Kubernetes' objects that a worker reads and writes. */
export interface Pod {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Metadata;
  readonly spec: PodSpec;
  readonly status?: PodStatus;
}

export interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly ownerReferences?: readonly OwnerReference[];
  readonly resourceVersion?: string;
}

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
}

export interface PodSpec {
  readonly containers: readonly Container[];
  readonly volumes?: readonly Volume[];
  readonly nodeName?: string;
  readonly [field: string]: unknown;
}

/** A source of any kind under its own field. */
export interface Volume {
  readonly name: string;
  readonly [source: string]: unknown;
}

export interface VolumeMount {
  readonly name: string;
  readonly mountPath: string;
  readonly subPath?: string;
  readonly readOnly?: boolean;
}

export interface Container {
  readonly name: string;
  readonly image?: string;
  readonly command?: readonly string[];
  readonly workingDir?: string;
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts?: readonly VolumeMount[];
  readonly resources?: {
    readonly requests?: Quantities;
    readonly limits?: Quantities;
    readonly claims?: readonly { readonly name: string }[];
  };
  readonly [field: string]: unknown;
}

export type Quantities = Readonly<Record<string, string>>;

export interface PodStatus {
  readonly phase?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly hostIP?: string;
  readonly conditions?: readonly {
    readonly type: string;
    readonly status: string;
    readonly reason?: string;
    readonly message?: string;
  }[];
  readonly containerStatuses?: readonly {
    readonly state?: {
      readonly waiting?: { readonly reason?: string; readonly message?: string };
      readonly terminated?: {
        readonly exitCode?: number;
        readonly reason?: string;
        readonly message?: string;
      };
    };
  }[];
}

export interface Node {
  readonly metadata: Metadata;
  readonly status?: { readonly allocatable?: Quantities };
}

/** A quantity of Kubernetes as a number, as `1500m`, `16Gi` or `3e9`; 0 for another text. */
export function quantity(text = "0"): number {
  const [, number, unit = ""] = /^([\d.]+(?:e\d+)?)([a-zA-Z]*)$/.exec(text) ?? [];
  const binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi"].indexOf(unit);
  if (binary >= 0) return Number(number ?? 0) * 1_024 ** binary;
  const decimal = ["m", "", "k", "M", "G", "T", "P"].indexOf(unit);
  return decimal < 0 ? 0 : Number(number ?? 0) * 1_000 ** (decimal - 1);
}
