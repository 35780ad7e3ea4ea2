import { AppError, toAppError } from "@heddle/base/errors";
import type {
  Engine,
  EngineFailure,
  GenerateRequest,
  SubmitOptions,
} from "@heddle/contracts/engine";
import type { AdapterFiles } from "./adapter-files.ts";

/** A request of a model with an adapter, whose file may have to be pulled first. */
export interface AdaptedRequest {
  readonly id: number;
  readonly request: GenerateRequest;
  readonly adapter: NonNullable<GenerateRequest["adapter"]>;
  readonly options: SubmitOptions;
}

/** Who runs the request once its adapter is there. */
interface AdaptedCallPorts {
  readonly files: AdapterFiles;
  /** Undefined where the request or its engine is gone. */
  readonly engine: () => Engine | undefined;
  readonly fail: (error: EngineFailure) => void;
}

/** Submits the request when the file is there; the deadline counts from now. Returns its cancel. */
export function submitAdapted(
  { id, request, adapter, options }: AdaptedRequest,
  { files, engine, fail }: AdaptedCallPorts,
): () => void {
  const { deadlineMs } = options;
  const beganMs = performance.now();
  let taken: Engine | undefined;
  let isEnded = false;
  const end = (error: AppError) => {
    if (isEnded) return;
    isEnded = true;
    clearTimeout(timer);
    const { code, message, param } = error;
    fail({ code, message, param });
  };
  const late = new AppError(
    "deadline_exceeded",
    `the adapter ${adapter.weights.file} was not pulled within the ${deadlineMs} ms of the request`,
  );
  const timer = deadlineMs > 0 ? setTimeout(() => end(late), deadlineMs) : undefined;
  const submit = (path: string) => {
    if (isEnded) return;
    isEnded = true;
    clearTimeout(timer);
    taken = engine();
    const passedMs = performance.now() - beganMs;
    const left = deadlineMs > 0 ? Math.max(1, deadlineMs - passedMs) : 0;
    const settled = { ...request, adapter: { ...adapter, path } };
    taken?.submit(id, settled, { ...options, deadlineMs: left });
  };
  files.pathOf(adapter.weights).then(submit, (error) => end(toAppError(error)));
  return () => {
    if (taken === undefined) end(new AppError("cancelled", "the request was cancelled"));
    else taken.cancel(id);
  };
}
