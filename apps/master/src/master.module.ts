import { type DynamicModule, Module, type Provider, type Type } from "@nestjs/common";
import { ChatController } from "./inference/chat.controller.ts";

/** Every controller of the master; each route in them declares its permission. */
export const CONTROLLERS: readonly Type[] = [ChatController];

/** Nest's view of the master: the routes, and the parts that `createMaster` has built for them. */
@Module({})
export class MasterModule {
  static with(providers: Provider[]): DynamicModule {
    return { module: MasterModule, controllers: [...CONTROLLERS], providers };
  }
}
