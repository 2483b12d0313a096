/** The address of the control planes, behind which any running one may answer. */
import type { Changes } from '../../src/domain/platform/changes.ts';
import type { ControlPlaneProcess, Endpoints } from './control-plane.ts';
import type { Network } from './network.ts';
import type { Life, World } from './world.ts';

export type ControlPlane = {
  /** Sends a request over the network. */
  ask<T>(caller: Life, what: (api: Endpoints) => T | Promise<T>): Promise<T>;
  /**
   * Wakes held requests for the topic at one control plane; a change at another one arrives by its
   * notifier, or never.
   */
  on(topic: Parameters<Changes['on']>[0], listener: () => void): void;
};

type Choose = (up: readonly ControlPlaneProcess[]) => ControlPlaneProcess | undefined;

export function createFront(
  world: World,
  network: Network,
  processes: readonly ControlPlaneProcess[],
): ControlPlane & {
  /**
   * For clients that stay with one control plane while it answers, as proxies must (docs/adr/0008).
   */
  staying(): ControlPlane;
} {
  const { random } = world;
  const any: Choose = (up) => (up.length > 1 ? random.pick(up) : up[0]);
  const front = (choose: Choose): ControlPlane => ({
    on: (topic, listener) => (any(processes) as ControlPlaneProcess).on(topic, listener),
    ask: (caller, what) =>
      network.ask(caller, (reply) => {
        const asked = choose(processes.filter((p) => p.api() !== null));
        const api = asked?.api() ?? null;
        // The control plane is down: the connection is refused at once, which counts as no answer.
        if (asked === undefined || api === null) return;
        Promise.resolve(api)
          .then(what)
          .then(
            (value) => reply({ ok: true, value }),
            (error: unknown) => {
              asked.surprised(error);
              reply({
                ok: false,
                error: error instanceof Error ? error : new Error(String(error)),
              });
            },
          )
          .catch(asked.surprised);
      }),
  });
  return {
    ...front(any),
    staying() {
      let last: ControlPlaneProcess | undefined;
      return front((up) => {
        if (last === undefined || !up.includes(last)) last = any(up);
        return last;
      });
    },
  };
}
