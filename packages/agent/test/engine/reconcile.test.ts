/** Leftover containers of an earlier agent process. */
import { defined } from '@berth/kit/defined';
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

it('neverStarted returns a container whose instance has no open task, though another instance has one', () => {
  const of = (instance: string | null): Container =>
    container({
      state: 'created',
      name: `created-${instance}`,
      labels: {
        'berth.deployment': 'd1',
        ...defined({ 'berth.instance': instance ?? undefined }),
      },
    });
  const instance = { id: 'i2', process: 'web', number: 2 };
  const open = [deployTask('d1', { instance })];
  expect(neverStarted([of(null), of('i2'), of('i3')], open).map((c) => c.name)).toEqual([
    'created-null',
    'created-i3',
  ]);
});
