/** What befalls the reverse proxy. */
import { setTimeout as lasts } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Row } from '../row.ts';

export const PROXY_ROWS: readonly Row[] = [
  {
    fault: 'Traefik restarted while the control plane is away',
    answer:
      'the relay, restarted too, hands it the last configuration from disk: every route is back; deployments go on when the control plane does',
    invariants: ['nothing-destroyed', 'route-observed'],
    stage: 'relay',
    outage: true,
    async run(stage) {
      const { front, berth } = stage;
      await berth.controlPlane.crash();
      await front.restartRelay();
      await front.restartTraefik();
      await stage.serves(stage.version(), 10_000);
      const ready = (await (await fetch(`${front.relayUrl()}/readyz`)).json()) as { config_age_seconds: number; control_plane: string };
      expect(ready.config_age_seconds).toBeGreaterThanOrEqual(0);
      expect(ready.control_plane).not.toBe('answers');
      await lasts(1_000);
      await berth.controlPlane.start();
      await stage.ends(await stage.release(), 'running');
    },
  },
  {
    fault: 'relay restarted during a deployment',
    answer: 'Traefik keeps what it has and asks again: no request fails, the deployment ends `running`',
    invariants: ['old-serves', 'settles'],
    stage: 'relay',
    async run(stage) {
      await stage.shims.node.hold('after', 'update');
      const asked = await stage.release();
      await stage.shims.node.reached('after', 'update');
      await stage.front.restartRelay();
      await stage.shims.node.clear();
      await stage.ends(asked, 'running');
    },
  },
];
