import { GrpcTransport } from "@heddle/rpc/nest/grpc-transport";
import type { DynamicModule, INestMicroservice } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ENROLLMENT, EnrollmentController } from "../enrollment/enrollment.controller.ts";
import { RaftController } from "./raft.controller.ts";
import { RaftMember, type RaftMemberOptions } from "./raft-member.ts";
import { RaftService } from "./raft-service.ts";

class RaftMemberModule {}

/**
 * The context that is booted first and closed last: the services that other masters and joining
 * nodes call while the control plane is still opening. Why it has its own: docs/adr/0011.
 */
export async function startRaftMember(options: RaftMemberOptions): Promise<INestMicroservice> {
  const member = {
    provide: RaftMember,
    inject: [RaftService],
    useFactory: (service: RaftService) => RaftMember.bind(options, service),
  };
  const enrollment = {
    provide: ENROLLMENT,
    inject: [RaftMember],
    useFactory: (of: RaftMember) => of.enrollment,
  };
  const hasTls = options.config.tls;
  const module: DynamicModule = {
    module: RaftMemberModule,
    controllers: hasTls ? [RaftController, EnrollmentController] : [RaftController],
    providers: hasTls ? [RaftService, member, enrollment] : [RaftService, member],
  };
  const context = await NestFactory.createMicroservice(module, {
    inject: [RaftMember],
    useFactory: ({ server }: RaftMember) => ({ strategy: new GrpcTransport(server.server) }),
    logger: false,
    abortOnError: false,
  });
  await context.listen();
  return context;
}
