#include <unordered_map>

#include "decode/builder.h"

namespace ptxrun {

std::optional<StartValue> special_register(const std::string& name) {
  static const std::unordered_map<std::string, StartValue> names = {
      {"%tid.x", StartValue::TidX},
      {"%tid.y", StartValue::TidY},
      {"%tid.z", StartValue::TidZ},
      {"%ntid.x", StartValue::NtidX},
      {"%ntid.y", StartValue::NtidY},
      {"%ntid.z", StartValue::NtidZ},
      {"%ctaid.x", StartValue::CtaidX},
      {"%ctaid.y", StartValue::CtaidY},
      {"%ctaid.z", StartValue::CtaidZ},
      {"%nctaid.x", StartValue::NctaidX},
      {"%nctaid.y", StartValue::NctaidY},
      {"%nctaid.z", StartValue::NctaidZ},
      {"%laneid", StartValue::LaneId},
      {"%warpid", StartValue::WarpId},
      {"%nwarpid", StartValue::NwarpId},
      {"%smid", StartValue::SmId},
      {"%nsmid", StartValue::NsmId},
      {"%gridid", StartValue::GridId},
      {"%lanemask_eq", StartValue::LanemaskEq},
      {"%lanemask_le", StartValue::LanemaskLe},
      {"%lanemask_lt", StartValue::LanemaskLt},
      {"%lanemask_ge", StartValue::LanemaskGe},
      {"%lanemask_gt", StartValue::LanemaskGt},
      {"%clusterid.x", StartValue::ClusterIdX},
      {"%clusterid.y", StartValue::ClusterIdY},
      {"%clusterid.z", StartValue::ClusterIdZ},
      {"%nclusterid.x", StartValue::NclusterIdX},
      {"%nclusterid.y", StartValue::NclusterIdY},
      {"%nclusterid.z", StartValue::NclusterIdZ},
      {"%cluster_ctaid.x", StartValue::ClusterCtaidX},
      {"%cluster_ctaid.y", StartValue::ClusterCtaidY},
      {"%cluster_ctaid.z", StartValue::ClusterCtaidZ},
      {"%cluster_nctaid.x", StartValue::ClusterNctaidX},
      {"%cluster_nctaid.y", StartValue::ClusterNctaidY},
      {"%cluster_nctaid.z", StartValue::ClusterNctaidZ},
      {"%cluster_ctarank", StartValue::ClusterCtarank},
      {"%cluster_nctarank", StartValue::ClusterNctarank},
      {"%is_explicit_cluster", StartValue::IsExplicitCluster},
      {"%dynamic_smem_size", StartValue::DynamicSmemSize},
      {"%total_smem_size", StartValue::TotalSmemSize},
      {"WARP_SZ", StartValue::WarpSize},
      // What cooperative groups read: the address of the grid's workspace.
      {"%envreg1", StartValue::GridWorkspaceHigh},
      {"%envreg2", StartValue::GridWorkspaceLow},
  };
  const auto found = names.find(name);
  if (found == names.end()) return std::nullopt;
  return found->second;
}

}  // namespace ptxrun
