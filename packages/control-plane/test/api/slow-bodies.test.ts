/**
 * Bodies that are built to be expensive (security review H1): the work for one request has a limit.
 */
import type { ErrorObject } from 'ajv';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fieldProblems } from '../../src/api/validation.ts';
import { type Api, createApi, rulesOf } from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

/** Counts the reads of errors for `count` problems. This measures the work without a clock. */
function readsOf(count: number, make: (i: number) => Partial<ErrorObject>): number {
  let reads = 0;
  const errors = Array.from({ length: count }, (_, i) => {
    const error = {
      instancePath: '',
      schemaPath: '#/additionalProperties',
      params: {},
      ...make(i),
    } as ErrorObject;
    return new Proxy(error, {
      get(target, key, receiver) {
        reads++;
        return Reflect.get(target, key, receiver) as unknown;
      },
    });
  });
  fieldProblems(errors, 'body');
  return reads;
}

describe('describing the problems of a body', () => {
  test.each<[string, (i: number) => Partial<ErrorObject>]>([
    [
      'unknown fields',
      (i) => ({ keyword: 'additionalProperties', params: { additionalProperty: `x${i}` } }),
    ],
    [
      'unions that fit no branch',
      (i) => ({ keyword: 'anyOf', instancePath: `/a/${i}`, schemaPath: `#/a/${i}/anyOf` }),
    ],
    [
      'types that are wrong',
      (i) => ({ keyword: 'type', instancePath: `/a/${i}`, params: { type: 'string' } }),
    ],
  ])('costs the same for 4,000 and for 16,000 %s', (_what, make) => {
    expect(readsOf(16_000, make)).toBe(readsOf(4_000, make));
  });

  test('reports the first 100 problems', async () => {
    const body = Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`x${i}`, 1]));
    const reply = await api.call('createProject', { body });
    expect(rulesOf(reply)).toHaveLength(100);
    expect(rulesOf(reply)).toContain('x0:unknown_field');
  });
});

describe('a public route', () => {
  test.each(['login', 'refresh', 'exchange'] as const)('%s accepts at most 8 KiB', async (name) => {
    const raw = JSON.stringify({ email: 'a@example.com', password: 'a'.repeat(8_192) });
    const reply = await api.call(name, { raw });
    expect([reply.status, reply.json['code']]).toEqual([413, 'body_too_large']);
    expect(reply.json['detail']).toContain('8 KiB');
  });

  test('other routes name their limit in MiB', async () => {
    const reply = await api.call('createProject', { raw: `{"name":"${'a'.repeat(1_048_576)}"}` });
    expect(reply.json['detail']).toContain('1 MiB');
  });
});
