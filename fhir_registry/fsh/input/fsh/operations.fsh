RuleSet: Operation(name, code)
* url = "https://cuvil.org/fhir/OperationDefinition/{code}"
* version = "1.0.0"
* name = "{name}"
* status = #active
* kind = #operation
* code = #{code}
* resource = #DeviceDefinition
* system = false
* type = false
* instance = true
* affectsState = false

Instance: verify
InstanceOf: OperationDefinition
Usage: #definition
* insert Operation(Verify, verify)
* title = "Verify the evidence of a model version"
* description = "Makes the checks of `cuvil verify` on the release that the registry keeps. The first issue is the verdict; the others are the checks, one each. The status is 200 whatever the verdict."
* parameter.name = #return
* parameter.use = #out
* parameter.min = 1
* parameter.max = "1"
* parameter.documentation = "Severity information for a check that holds, error for one that does not, warning for one that was not made."
* parameter.type = #OperationOutcome

Instance: model-resource
InstanceOf: OperationDefinition
Usage: #definition
* insert Operation(ModelResource, model-resource)
* title = "Flat view of a model version"
* description = "Answers with a JSON object (application/json) of the logical model ModelResource: no FHIR resource, and therefore never part of a Bundle. The resource parameter of FHIR stands for it here as a Binary."
* parameter.name = #return
* parameter.use = #out
* parameter.min = 1
* parameter.max = "1"
* parameter.documentation = "The logical model https://cuvil.org/fhir/StructureDefinition/ModelResource as JSON."
* parameter.type = #Binary
