/** Reads the lease token of an agent's request (docs/interfaces.md "Tasks"). */
import type { FastifyRequest } from 'fastify';
import { invalid } from '../domain/errors.ts';

/** null: an agent that knows the contract alone quotes none. */
export function leaseToken(request: FastifyRequest): string | null {
  const token = request.headers['x-lease-token'];
  return typeof token === 'string' && token !== '' ? token : null;
}

export function requiredToken(request: FastifyRequest): string {
  const token = leaseToken(request);
  if (token === null) throw invalid('X-Lease-Token', 'required', 'the header is missing; it quotes the lease that `start` gave');
  return token;
}
