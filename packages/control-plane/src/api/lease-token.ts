/** Reads the lease token of an agent's request (docs/interfaces.md "Tasks"). */
import type { FastifyRequest } from 'fastify';
import { invalid } from '../domain/platform/errors.ts';

/** Returns null if the header is missing: contract-only agents do not send it. */
export function leaseToken(request: FastifyRequest): string | null {
  const token = request.headers['x-lease-token'];
  return typeof token === 'string' && token !== '' ? token : null;
}

export function requiredToken(request: FastifyRequest): string {
  const token = leaseToken(request);
  if (token === null)
    throw invalid(
      'X-Lease-Token',
      'required',
      'the header is missing; send the lease_token that `start` returned',
    );
  return token;
}
