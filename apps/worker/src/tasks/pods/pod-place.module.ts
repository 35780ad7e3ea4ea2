import type { DynamicModule } from "@nestjs/common";
import { PodPlace } from "./pod-place.ts";

class PodPlaceModule {}

/** The worker's place in Kubernetes; undefined where its tasks are no Pods. */
export function podPlaceModule(place: PodPlace | undefined): DynamicModule {
  return {
    module: PodPlaceModule,
    global: true,
    providers: [{ provide: PodPlace, useValue: place }],
    exports: [PodPlace],
  };
}
