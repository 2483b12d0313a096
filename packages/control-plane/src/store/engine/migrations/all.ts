/**
 * All migrations, oldest first. A released migration never changes. The number in its name gives
 * the order. A migration has `contracts: true` (migrate.ts) if it removes or renames something, or
 * adds a constraint that rows of the previous version can violate.
 */
import type { Capabilities } from '../capabilities.ts';
import type { Steps } from '../migrate.ts';
import { mainJob } from './0001_main_job.ts';
import { identity } from './0002_identity.ts';
import { observedSince } from './0003_observed_since.ts';
import { data } from './0004_data.ts';
import { nodeIdentity } from './0005_node_identity.ts';
import { deadlines } from './0006_deadlines.ts';
import { record } from './0007_record.ts';
import { signIn } from './0008_sign_in.ts';
import { api } from './0010_api.ts';
import { retention } from './0011_retention.ts';
import { origin } from './0012_origin.ts';
import { keptSettings } from './0013_kept_settings.ts';
import { autovacuum } from './0014_autovacuum.ts';
import { earlierNodes } from './0015_earlier_nodes.ts';
import { secrets } from './0016_secrets.ts';
import { git } from './0017_git.ts';
import { hooks } from './0018_hooks.ts';
import { backups } from './0019_backups.ts';
import { sharedSecret } from './0021_shared_secret.ts';
import { stopped } from './0022_stopped.ts';
import { volumes } from './0023_volumes.ts';
import { domains } from './0024_domains.ts';
import { runtimeLogs } from './0025_runtime_logs.ts';
import { usage } from './0026_usage.ts';
import { notifications } from './0027_notifications.ts';
import { cleanUp } from './0028_clean_up.ts';
import { rights } from './0029_rights.ts';
import { volumeMoves } from './0030_volume_moves.ts';
import { volumeSizes } from './0034_volume_sizes.ts';
import { moveWitness } from './0037_move_witness.ts';
import { prefixClaims } from './0039_prefix_claims.ts';
import { corsOrigins } from './0040_cors_origins.ts';
import { unmanagedContainers } from './0041_unmanaged_containers.ts';
import { missingImages } from './0042_missing_images.ts';
import { missingVolumes } from './0043_missing_volumes.ts';
import { startSeconds } from './0045_start_seconds.ts';
import { gitLfs } from './0047_git_lfs.ts';
import { rolledBack } from './0049_rolled_back.ts';
import { nodeAddresses } from './0052_node_addresses.ts';
import { deviceStates } from './0062_device_states.ts';
import { waitingReason } from './0063_waiting_reason.ts';
import { healthCause } from './0064_health_cause.ts';
import { instances } from './0065_instances.ts';
import { machines } from './0066_machines.ts';
import { dataCopies } from './0067_data_copies.ts';
import { heardAt } from './0068_heard_at.ts';
import { instanceFields } from './0070_instance_fields.ts';
import { onNodeLostSet } from './0071_on_node_lost_set.ts';
import { leaseInstances } from './0072_lease_instances.ts';
import { addressedAt } from './0073_addressed_at.ts';
import { stoppedByPerson } from './0073_stopped_by_person.ts';
import { runs } from './0074_runs.ts';
import { configFile } from './0075_config_file.ts';
import { exec } from './0076_exec.ts';
import { jobs } from './0077_jobs.ts';
import { releaseCommand } from './0078_release_command.ts';
import { releaseLogged } from './0086_release_logged.ts';
import { runDevices } from './0087_run_devices.ts';
import { processes } from './0079_processes.ts';
import { scaled } from './0083_scaled.ts';
import { runInput } from './0085_run_input.ts';
import { fileJobs } from './0084_file_jobs.ts';

export const allMigrations = (capabilities: Capabilities): Steps => ({
  '0001_main_job': mainJob(capabilities),
  '0002_identity': identity(capabilities),
  '0003_observed_since': observedSince(),
  '0004_data': data(capabilities),
  '0005_node_identity': nodeIdentity(capabilities),
  '0006_deadlines': deadlines(capabilities),
  '0007_record': record(capabilities),
  '0008_sign_in': signIn(capabilities),
  '0010_api': api(capabilities),
  '0011_retention': retention(),
  '0012_origin': origin(capabilities),
  '0013_kept_settings': keptSettings(capabilities),
  '0014_autovacuum': autovacuum(capabilities),
  '0015_earlier_nodes': earlierNodes(capabilities),
  '0016_secrets': secrets(capabilities),
  '0017_git': git(capabilities),
  '0018_hooks': hooks(capabilities),
  '0019_backups': backups(capabilities),
  '0021_shared_secret': sharedSecret(capabilities),
  '0022_stopped': stopped(),
  '0023_volumes': volumes(capabilities),
  '0024_domains': domains(capabilities),
  '0025_runtime_logs': runtimeLogs(capabilities),
  '0026_usage': usage(capabilities),
  '0027_notifications': notifications(capabilities),
  '0028_clean_up': cleanUp(capabilities),
  '0029_rights': rights(capabilities),
  '0030_volume_moves': volumeMoves(capabilities),
  '0034_volume_sizes': volumeSizes(capabilities),
  '0037_move_witness': moveWitness(capabilities),
  '0039_prefix_claims': prefixClaims(capabilities),
  '0040_cors_origins': corsOrigins(capabilities),
  '0041_unmanaged_containers': unmanagedContainers(capabilities),
  '0042_missing_images': missingImages(),
  '0043_missing_volumes': missingVolumes(),
  '0045_start_seconds': startSeconds(),
  '0047_git_lfs': gitLfs(),
  '0049_rolled_back': rolledBack(capabilities),
  '0052_node_addresses': nodeAddresses(),
  '0062_device_states': deviceStates(),
  '0063_waiting_reason': waitingReason(capabilities),
  '0064_health_cause': healthCause(capabilities),
  '0065_instances': instances(capabilities),
  '0066_machines': machines(capabilities),
  '0067_data_copies': dataCopies(capabilities),
  '0068_heard_at': heardAt(),
  '0070_instance_fields': instanceFields(capabilities),
  '0071_on_node_lost_set': onNodeLostSet(),
  '0072_lease_instances': leaseInstances(capabilities),
  '0073_addressed_at': addressedAt(),
  '0073_stopped_by_person': stoppedByPerson(),
  '0074_runs': runs(capabilities),
  '0075_config_file': configFile(capabilities),
  '0076_exec': exec(capabilities),
  '0077_jobs': jobs(capabilities),
  '0078_release_command': releaseCommand(capabilities),
  '0079_processes': processes(),
  '0083_scaled': scaled(capabilities),
  '0084_file_jobs': fileJobs(capabilities),
  '0085_run_input': runInput(),
  '0086_release_logged': releaseLogged(capabilities),
  '0087_run_devices': runDevices(capabilities),
});
