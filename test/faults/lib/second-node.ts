/** Runs a row with the stage's second deploy node uncordoned. */
import type { Stage } from './stage.ts';

/** Runs `play` with node-2 uncordoned, so that node-1's work can move. */
export async function withSecondNode(stage: Stage, play: () => Promise<void>): Promise<void> {
  const nodes = (await stage.berth.api.call('listNodes', { query: {} })).items;
  const second = nodes.find((n) => n.hostname === 'node-2');
  if (second === undefined) throw new Error('this stage has no second node');
  const params = { id: second.id };
  await stage.berth.api.call('uncordonNode', { params });
  try {
    await play();
  } finally {
    await stage.berth.api.call('cordonNode', { params });
  }
  // Deploys on node-1 again, where the next row expects the project.
  await stage.ends(await stage.release(), 'running');
}
