/** Faults of the reverse proxy. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Argv, run } from '@berth/testbed/process';
import { expect } from 'vitest';
import type { Row } from '../row.ts';

export const PROXY_ROWS: readonly Row[] = [
  {
    fault: 'Traefik restarted while the control plane is stopped',
    answer:
      'the relay, restarted too, serves the last configuration from disk; every route is back; ' +
      'deployments continue when the control plane is back',
    invariants: ['nothing-destroyed', 'route-observed'],
    stage: 'relay',
    outage: true,
    async run(stage) {
      const { front, berth } = stage;
      await berth.controlPlane.crash();
      await front.restartRelay();
      await front.restartTraefik();
      await stage.serves(stage.version(), 10_000);
      const ready = (await (await fetch(`${front.relayUrl()}/readyz`)).json()) as {
        config_age_seconds: number;
        control_plane: string;
      };
      expect(ready.config_age_seconds).toBeGreaterThanOrEqual(0);
      expect(ready.control_plane).not.toBe('answers');
      await sleep(1_000);
      await berth.controlPlane.start();
      await stage.ends(await stage.release(), 'running');
    },
  },
  {
    fault: 'relay restarted during a deployment',
    answer:
      'Traefik keeps its routes and asks again; no request fails; the deployment ends `running`',
    invariants: ['old-serves', 'settles'],
    stage: 'relay',
    async run(stage) {
      stage.shim.hold('after', 'update');
      const asked = await stage.release();
      await stage.shim.reached('after', 'update');
      await stage.front.restartRelay();
      stage.shim.clear();
      await stage.ends(asked, 'running');
    },
  },
  {
    fault: 'a firewall between the proxy and the node',
    answer:
      '`failed` (`proxy_cannot_reach_node`) within 30 s, with both addresses in the message; ' +
      'the route goes back to the old version',
    invariants: ['settles', 'old-serves'],
    stage: 'relay',
    outage: true,
    async run(stage) {
      const old = await stage.running();
      const { faults } = stage.engines.node;
      if (faults === undefined) throw new Error('the node has no private engine');
      // Proxy and agent run on one machine here. Only the proxy's requests have this header, so the
      // agent's probe passes. The live port stays open.
      const proxys = ['-m', 'string', '--algo', 'bm', '--string', 'X-Forwarded-Server'];
      const rule = [
        '-i',
        'eth1',
        '-p',
        'tcp',
        '!',
        '--dport',
        String(old.host_port),
        ...proxys,
        '-j',
        'DROP',
      ];
      const firewall = (action: string) =>
        run([
          ...faults.nsenterArgv(),
          'iptables',
          '-t',
          'raw',
          action,
          'PREROUTING',
          ...rule,
        ] as unknown as Argv);
      await firewall('-A');
      const failed = await stage.ends(
        await stage.releaseBroken({}),
        'failed',
        'proxy_cannot_reach_node',
      );
      expect(failed.error?.message).toContain(stage.engines.node.hostIp);
      await stage.serves(stage.version());
      await firewall('-D');
      await stage.ends(await stage.release(), 'running');
    },
  },
];
