import { expect, expectTypeOf, it } from 'vitest';
import { defined } from '../src/defined.ts';

it('leaves out undefined fields and keeps null, false, 0 and empty text', () => {
  const fields = { a: undefined, b: null, c: false, d: 0, e: '' };
  expect(Object.keys(defined(fields))).toEqual(['b', 'c', 'd', 'e']);
});

it('makes only the fields optional that can be undefined', () => {
  const port: number | undefined = process.argv.length > 1_000 ? 1 : undefined;
  const answer = defined({ host: 'a', port });
  expectTypeOf(answer.host).toEqualTypeOf<string>();
  expectTypeOf<{ host: string; port?: number }>().toExtend<typeof answer>();
  expect(answer).toStrictEqual({ host: 'a' });
});
