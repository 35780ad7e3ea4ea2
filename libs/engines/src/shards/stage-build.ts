import { LIBRARY_RELEASE } from "../llama/native/native-library.ts";
import { FRAME_VERSION } from "./ring/stage-frame.ts";

/** What all stages of a model must have in common, whatever the model. */
export const STAGE_BUILD = `${LIBRARY_RELEASE}/${FRAME_VERSION}`;
