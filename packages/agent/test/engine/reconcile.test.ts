/** Leftover containers of an earlier agent process. */
import { expect, it } from 'vitest';
import { neverStarted } from '../../src/engine/reconcile.ts';
import type { Container } from '../../src/engine/docker.ts';
import { deployTask } from '../fake-control-plane.ts';
import { container } from '../fake-engine.ts';

it('neverStarted returns unstarted containers without an open task', () => {
  const of = (state: string, deployment: string): Container =>
    container({
      state,
      name: `${state}-${deployment}`,
      labels: { 'berth.deployment': deployment },
    });
  const all = [
    of('created', 'old'),
    of('created', 'open'),
    of('running', 'old'),
    of('exited', 'old'),
  ];
  expect(neverStarted(all, [deployTask('open', {})]).map((c) => c.name)).toEqual(['created-old']);
});
