// holds: engine-conformance

import { engineConformance } from "../../testing/engine-conformance.ts";
import { TestSession } from "../testing/test-session.ts";

engineConformance("libllama", () => TestSession.open({ maxSequences: 4 }));
